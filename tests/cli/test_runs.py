"""The commands that use a run: evaluate and compare."""

import json
import shlex
import shutil
import subprocess
import sys

import pytest
from tests.evaluation.runs import aligned, make_run, model_for, trained, write_own
from tests.models import small
from typer.testing import CliRunner

from permalign import Transducer
from permalign.cli.app import app
from permalign.evaluation import evaluate, read_predictions
from permalign.files import fingerprint
from permalign.tasks.registry import get_task
from permalign.training.launch import train
from permalign.training.trained_run import DecodingSettings, TrainedRun


def permalign(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), prog_name="permalign")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two seeds of a system with little training, and two seeds of a system with more."""
    folder = tmp_path_factory.mktemp("runs")
    examples = small.examples(80)
    write_own(folder / "own.tsv", examples)
    task = {"name": "own", "path": str(folder / "own.tsv"), "test_size": 30}
    for system, steps in (("little", 10), ("more", 60)):
        for seed in (0, 1):
            make_run(
                folder / system / str(seed),
                trained(steps, examples, "none", "attention", seed=seed),
                task,
                seed=seed,
            )
    return folder


@pytest.fixture
def runs(made, tmp_path):
    """A copy of the trained runs, which the test may change."""
    return shutil.copytree(made, tmp_path / "runs")


@pytest.fixture
def translation(tmp_path):
    """A run of an untrained model that translates."""
    task = aligned(tmp_path)
    model = model_for(get_task(**task).examples("iid/train"), kind="tagging")
    return make_run(tmp_path / "run", model, task).path


def test_the_printed_metrics_are_those_of_an_evaluation_in_python(runs):
    run = runs / "more" / "0"
    done = permalign(
        "evaluate", run, "--split", "iid/test", "--split", "iid/dev", "--beam", 2, "--by", "length"
    )
    assert done.exit_code == 0
    task = get_task("own", path=runs / "own.tsv", test_size=30)
    report = evaluate(Transducer.from_pretrained(run), task, task.examples("iid/test"), beam=2)
    header, first, second, _, *by_length = done.stdout.splitlines()
    assert header.split() == ["SPLIT", "EXAMPLES", "EXACT_MATCH", "TOKEN_ACCURACY"]
    assert first.split() == ["iid/test", "30", *(f"{value:.2f}" for value in report.metrics.values())]
    assert second.split()[0] == "iid/dev"
    assert by_length[0].startswith("iid/test by length")
    assert read_predictions(run / "predictions" / "iid" / "test.jsonl") == report.predictions
    assert "evaluating on iid/test of own" in done.stderr


def test_json_has_one_object_per_split_and_the_default_is_the_test_split(runs, tmp_path):
    plot = tmp_path / "plot.pdf"
    done = permalign(
        "evaluate", runs / "little" / "0", "--json", "--plot", plot, "--output", tmp_path / "out"
    )
    (record,) = map(json.loads, done.stdout.splitlines())
    assert (record["split"], record["examples"]) == ("iid/test", 30)
    assert record["predictions"] == str(tmp_path / "out" / "iid" / "test.jsonl")
    assert sum(group["count"] for group in record["by_length"]) == 30
    assert plot.read_bytes().startswith(b"%PDF")
    assert not (runs / "little" / "0" / "predictions").exists()


def by_sacrebleu(log):
    """Run the sacrebleu command that was printed; returns its scores by name."""
    (line,) = (line for line in log.splitlines() if "command for the same scores: " in line)
    command = shlex.split(line.partition("scores: ")[2])
    assert command[0] == "sacrebleu"
    done = subprocess.run(
        [sys.executable, "-m", *command, "-w", "8"], capture_output=True, encoding="utf-8", check=True
    )
    return {"bleu" if score["name"] == "BLEU" else "chrf": score for score in json.loads(done.stdout)}


def test_bleu_is_that_of_the_printed_sacrebleu_command(translation):
    done = permalign("evaluate", translation, "--split", "iid/train", "--json")
    assert done.exit_code == 0
    record = json.loads(done.stdout)
    for name, score in by_sacrebleu(done.stderr).items():
        assert record["metrics"][name] == pytest.approx(score["score"], abs=1e-7)
        assert record["signatures"][name] == score["signature"]
    assert 0 < record["metrics"]["bleu"] < 100
    shown = permalign("evaluate", translation, "--split", "iid/train").stdout
    assert f"bleu: {record['signatures']['bleu']}" in shown


def test_bleu_during_training_is_that_of_evaluate_and_of_sacrebleu(tmp_path):
    head = {"kind": "tagging", "embedding_dim": 16, "hidden_size": 16, "encoder": {"hidden_size": 16}}
    training = {"max_steps": 15, "evaluate_every": 5, "learning_rate": 0.02, "beam": 2}
    options = {"task": {**aligned(tmp_path), "dev_size": 12}, "model": {"head": head}, "training": training}
    train(options, tmp_path / "trained")
    shown = [json.loads(line) for line in (tmp_path / "trained" / "metrics.jsonl").read_text().splitlines()]
    best = max(record["bleu"] for record in shown if record["kind"] == "dev")
    done = permalign("evaluate", tmp_path / "trained", "--split", "iid/dev", "--json")
    assert json.loads(done.stdout)["metrics"]["bleu"] == pytest.approx(best, abs=1e-9)
    assert by_sacrebleu(done.stderr)["bleu"]["score"] == pytest.approx(best, abs=1e-7)
    assert 0 < best < 100


def test_a_note_counts_examples_that_occur_in_train(translation):
    done = permalign("evaluate", translation, "--split", "iid/test")
    assert "of 4 examples of iid/test also occur in iid/train" in done.stderr


def test_a_checkpoint_has_its_own_predictions(runs):
    run = runs / "little" / "0"
    shutil.copytree(runs / "more" / "0" / "model", run / "checkpoints" / "last")
    best, last = (
        json.loads(permalign("evaluate", run, "--json", *more).stdout)
        for more in ((), ("--checkpoint", "last"))
    )
    assert best["metrics"]["token_accuracy"] < last["metrics"]["token_accuracy"]
    assert last["predictions"] == str(run / "predictions" / "last" / "iid" / "test.jsonl")


def test_options_of_the_task_can_be_changed(tmp_path):
    task = {"name": "arithmetic"}
    model = model_for(get_task("arithmetic", depth=4).examples("depth-4/test")[:200])
    run = make_run(tmp_path / "run", model, task).path
    done = permalign(
        "evaluate",
        run,
        "--set",
        "task.depth=3",
        "--set",
        "task.max_length=9",
        "--split",
        "depth-3/test",
        "--by",
        "depth",
    )
    assert done.exit_code == 0
    assert done.stdout.splitlines()[4].split()[0] == "3"
    assert permalign("evaluate", run, "--set", "seed=3").exit_code == 2


def test_the_default_beam_size_is_that_of_training(runs):
    run = TrainedRun(runs / "little" / "0")
    assert run.beam(DecodingSettings()) == 1
    config = runs / "little" / "0" / "config.yaml"
    config.write_text(config.read_text().replace("beam: 1", "beam: 3"))
    assert TrainedRun(runs / "little" / "0").beam(DecodingSettings()) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("evaluate", "nowhere"), 1, "nowhere: is not a run: it has no config.yaml"),
        (("evaluate", "RUN", "--split", "iid/tset"), 2, "did you mean 'iid/test'?"),
        (("evaluate", "RUN", "--checkpoint", "lats"), 2, "unknown checkpoint"),
        (("evaluate", "RUN", "--checkpoint", "../model"), 2, "unknown checkpoint"),
        (("evaluate", "RUN", "--constrained"), 2, "own has no grammar"),
        (("evaluate", "RUN", "--by", "depth"), 2, "examples of own have no depth"),
        (("evaluate", "RUN", "--by", "width"), 2, "'width' is not one of"),
        (("evaluate", "RUN", "--plot", "plot.jpeg"), 2, ".png, .pdf or .svg"),
        (("evaluate", "RUN", "--beam", "0"), 2, "should be greater than or equal to 1"),
        (("evaluate", "RUN", "--set", "task.pth=x"), 2, "has no option --pth"),
        (("compare", "RUN", "nowhere"), 1, "there is no run 'nowhere'"),
        (("compare", "RUN", "RUN,nowhere"), 1, "there is no run 'nowhere' (of "),
        (("compare", "RUN", "RUN/model"), 1, "is neither a run nor a folder of runs"),
        (("compare", "RUN", "RUN", "--split", "len/test"), 2, "unknown split of own 'len/test'"),
        (("compare", ",", "RUN"), 2, "',' does not name a run"),
        (("compare", "RUN"), 2, "missing argument"),
    ],
)
def test_errors_are_printed_without_a_stack_trace(runs, arguments, code, words):
    filled = [argument.replace("RUN", str(runs / "little" / "0")) for argument in arguments]
    done = permalign(*filled)
    assert (done.exit_code, done.stdout) == (code, "")
    assert words in " ".join(done.stderr.split())
    assert "evaluating" not in done.stderr  # errors are found before the evaluation starts


def test_a_run_that_has_no_model_yet_is_an_error(runs):
    shutil.rmtree(runs / "little" / "0" / "model")
    done = permalign("evaluate", runs / "little" / "0")
    assert done.exit_code == 1
    assert "has no model yet" in done.stderr


def test_seeds_may_be_given_as_a_folder_or_as_a_list(runs):
    listed = [f"{runs / system / '0'},{runs / system / '1'}" for system in ("little", "more")]
    by_folder = permalign("compare", runs / "little", runs / "more", "--json")
    by_list = permalign("compare", *listed, "--json")
    assert by_folder.stdout == by_list.stdout
    record = json.loads(by_folder.stdout)
    assert record["first"] == [str(runs / "little" / seed) for seed in "01"]
    exact = record["comparisons"][0]
    assert exact["metric"] == "exact_match"
    assert len(exact["second"]["values"]) == 2
    assert exact["second"]["deviation"] is not None
    assert exact["difference"] > 10
    assert exact["p_values"][0] < 0.05


def test_a_system_does_not_differ_from_itself(runs):
    done = permalign("compare", runs / "more" / "0", runs / "more" / "0")
    assert done.exit_code == 0
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("exact_match"))
    assert row[1] == row[2]
    assert row[3:] == ["+0.00", "1.0000"]
    assert "P of exact_match: paired permutation test" in done.stdout


def test_stored_predictions_are_reused_until_the_model_or_the_decoding_changes(runs):
    run = runs / "little" / "0"

    def exact_match(*options):
        done = permalign("compare", run, run, "--json", *options)
        return json.loads(done.stdout)["comparisons"][0]["first"]["mean"]

    before, other = exact_match(), runs / "more" / "1"
    stored = run / "predictions" / "iid" / "test.jsonl"
    record = stored.with_suffix(".json")

    def call_all_correct():
        """Change the stored predictions, so that one sees whether they are used."""
        old = stored.read_bytes()
        new = old.replace(b'"correct": false', b'"correct": true')
        stored.write_bytes(new)
        record.write_text(record.read_text().replace(fingerprint([old]), fingerprint([new])))

    call_all_correct()
    assert exact_match() == 100.0
    assert exact_match("--beam", 2) < 100.0
    assert exact_match() == before
    call_all_correct()
    assert exact_match("--again") == before
    stored.write_bytes(stored.read_bytes().replace(b'"correct": false', b'"correct": true', 1))
    assert exact_match() == before, "a file that is not the one that was stored is not used"
    weights = run / "model" / "model.safetensors"
    weights.write_bytes((other / "model" / "model.safetensors").read_bytes())
    (run / "model" / "checksums.json").unlink()
    assert (
        exact_match()
        == TrainedRun(other).evaluate("iid/test", DecodingSettings()).metrics["exact_match"]
        != before
    )


def test_translations_are_compared_by_sacrebleu(translation, tmp_path):
    other = shutil.copytree(translation, tmp_path / "other")
    task = get_task(**aligned(tmp_path))
    model_for(task.examples("iid/train"), kind="tagging", hidden_size=16).save_pretrained(other / "model")
    done = permalign("compare", translation, other, "--split", "iid/train", "--resamples", 100, "--bootstrap")
    assert done.exit_code == 0
    assert "P of bleu, chrf: sacrebleu's paired bootstrap" in done.stdout


def test_only_runs_on_the_same_examples_are_compared(runs, translation):
    done = permalign("compare", runs / "little" / "0", translation)
    assert done.exit_code == 1
    assert "only predictions for the same examples can be compared" in done.stderr


@pytest.mark.parametrize("verb", ["evaluate", "predict", "compare"])
def test_the_help_of_every_command_has_examples(verb):
    done = permalign(verb, "--help")
    assert done.exit_code == 0
    assert f"Examples:\n    permalign {verb} runs/" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("evaluate",), ("predict",), ("compare",)])
def test_help_does_not_wait_for_torch(arguments):
    program = (
        "import sys\n"
        "from permalign.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    print(sorted({'torch', 'scipy', 'sacrebleu', 'matplotlib'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, *arguments, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: permalign")
    assert done.stdout.endswith("\n[]\n")


def test_predictions_are_stored_with_the_fingerprint_of_their_model(runs):
    little, more = runs / "little" / "0", runs / "more" / "0"
    run, decoding = TrainedRun(little), DecodingSettings()
    before = run.evaluate("iid/test", decoding)
    shutil.copytree(more / "model", little / "model", dirs_exist_ok=True)  # as training does it meanwhile
    run.write("iid/test", decoding, before)
    assert (
        TrainedRun(little).predictions("iid/test", decoding)
        == TrainedRun(more).predictions("iid/test", decoding)
        != before.predictions
    )


def test_stored_predictions_for_other_examples_are_not_reused(runs, monkeypatch):
    run, decoding = TrainedRun(runs / "more" / "0"), DecodingSettings()
    run.predictions("iid/test", decoding)
    again = TrainedRun(runs / "more" / "0")
    some = again.task.examples("iid/test")[:7]
    monkeypatch.setattr(again.task, "examples", lambda split: some)
    assert len(again.predictions("iid/test", decoding)) == 7


def test_an_exact_search_needs_a_model_that_allows_it(runs):
    done = permalign("evaluate", runs / "little" / "0", "--search", "exact")
    assert done.exit_code == 2
    assert "exact search is possible only for models that sum over orders" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
