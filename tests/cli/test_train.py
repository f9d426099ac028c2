import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
import yaml
from tests.training.small_run import options, write_data
from typer.testing import CliRunner

from permalign.cli.app import app
from permalign.training.experiments import experiment_names
from permalign.training.progress_display import PlainDisplay, RichDisplay


@pytest.fixture
def permalign(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        yaml.safe_dump(options(write_data(tmp_path / "data"), max_steps=4, evaluate_every=2, stages=[]))
    )
    return path


@pytest.mark.parametrize("verb", ["train", "average", "ensemble", "tune", "demo"])
def test_help_shows_examples_without_torch(verb):
    program = (
        "import sys\nfrom permalign.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, verb, "--help"], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0
    assert f"  permalign {verb}" in done.stdout


def test_all_experiments_are_listed_with_a_description(permalign):
    lines = permalign("train", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == experiment_names()
    assert all(len(line.split()) > 4 for line in lines)


def test_training_prints_where_the_model_is(permalign, config, tmp_path):
    answer = permalign("train", "mine.yaml", "--set", "training.max_steps=2", "--seed", "5")
    assert answer.exit_code == 0
    assert answer.stdout == "runs/mine-seed-5/model\n"
    assert "step 2/2  dev  exact_match" in answer.stderr
    assert "Finished: all 2 steps are done." in answer.stderr
    assert (tmp_path / "runs" / "mine-seed-5" / "model" / "model.safetensors").exists()
    again = permalign("train", "mine.yaml", "--seed", "5")
    assert again.exit_code == 1
    assert "--resume runs/mine-seed-5" in again.stderr
    assert "Traceback" not in again.stderr
    finished = permalign("train", "--resume", "runs/mine-seed-5")
    assert finished.exit_code == 0
    assert "Finished: all 2 steps are done." in finished.stderr


def test_averaging_models_of_different_seeds_is_warned_of(permalign, config):
    for seed in (0, 1):
        assert permalign("train", config, "--run", f"run-{seed}", "--seed", str(seed)).exit_code == 0
    answer = permalign("average", "run-0", "run-1", "--out", "mean")
    assert answer.exit_code == 0
    assert "warning: these models were trained with different seeds (0, 1)" in answer.stderr
    same = permalign("average", "run-0", "run-0/model", "--out", "same")
    assert (same.exit_code, same.stderr) == (0, "")


def test_kept_checkpoints_are_averaged(permalign, config):
    assert permalign("train", "mine.yaml", "--run", "run").exit_code == 0
    answer = permalign("average", "run", "--out", "mean")
    assert (answer.exit_code, answer.stdout) == (0, "mean\n")
    assert permalign("average", "run", "--out", "mean").exit_code == 1
    assert permalign("average", "run", "--out", "mean", "--overwrite").exit_code == 0


def test_kept_checkpoints_become_an_ensemble(permalign, config):
    assert permalign("train", config, "--run", "run").exit_code == 0
    answer = permalign("ensemble", "run", "--out", "all")
    assert (answer.exit_code, answer.stdout) == (0, "all\n")
    assert len(json.loads(Path("all/model/config.json").read_text())["members"]) > 1
    assert permalign("ensemble", "run", "--out", "all").exit_code == 1
    assert permalign("ensemble", "run", "--out", "all", "--overwrite").exit_code == 0
    answer = permalign("ensemble", "run", "run/model", "--out", "run", "--overwrite")
    assert (answer.exit_code, "which is needed" in answer.stderr) == (1, True)


def test_combined_models_are_runs_that_other_commands_take(permalign, config):
    assert permalign("train", config, "--run", "run").exit_code == 0
    assert permalign("ensemble", "run/model", "run/checkpoints/last", "--out", "both").exit_code == 0
    answer = permalign("evaluate", "both", "--split", "iid/dev", "--json")
    assert answer.exit_code == 0, answer.stderr
    assert json.loads(answer.stdout)["predictions"] == "both/predictions/iid/dev.jsonl"
    assert permalign("compare", "run", "both", "--split", "iid/dev").exit_code == 0
    source = json.loads(Path("both/predictions/iid/dev.jsonl").read_text().splitlines()[0])["source"]
    offered = Path("both/examples.txt").read_text().splitlines()
    assert len(offered) == 5
    dev = [json.loads(line)["source"] for line in Path("run/predictions/dev.jsonl").read_text().splitlines()]
    assert set(offered) <= {" ".join(words) for words in dev}
    answer = permalign("explain", "both", " ".join(source), "--json")
    assert answer.exit_code == 0, answer.stderr
    answer = permalign("train", "--resume", "both")
    assert (answer.exit_code, "cannot be trained further" in answer.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train"], 2, "the name of an experiment (see permalign train --list) or a YAML file is missing"),
        (["train", "arithmetic/sotf"], 1, "did you mean 'arithmetic/soft'?"),
        (["train", "nowhere.yaml"], 1, "there is no such file"),
        (
            ["train", "arithmetic/soft", "--set", "training.max_stepz=1"],
            2,
            "did you mean training.max_steps?",
        ),
        (["train", "--resume", "nowhere"], 1, "is not a run"),
        (["train", "arithmetic/soft", "--resume", "nowhere"], 2, "use --resume RUN without other options"),
        (["train", "--resume", "x", "--source-column", "a"], 2, "use --resume RUN without other options"),
        (["train", "arithmetic/soft", "--set", "task.notation=infix"], 2, "expected 'postfix' or 'prefix'"),
        (["tune", "arithmetic/soft", "--range", "seed=9:1"], 2, "is an empty range"),
        (["average", "nowhere", "--out", "mean"], 1, "there is no such run"),
    ],
)
def test_errors_are_printed_without_a_stack_trace(permalign, arguments, code, message):
    answer = permalign(*arguments)
    assert answer.exit_code == code
    assert message in " ".join(answer.stderr.replace("│", " ").split())
    assert answer.stdout == ""


def test_plain_lines_show_the_remaining_time():
    stream = StringIO()
    display = PlainDisplay(stream)
    display.begin(0, 100)
    display.record(50, "train", {"loss": 0.25})
    assert stream.getvalue().startswith("step 50/100  train  loss 0.25  (0s left)")


def test_the_progress_bar_shows_step_loss_dev_metric_and_time():
    from rich.console import Console

    console = Console(file=StringIO(), force_terminal=True, width=120)
    display = RichDisplay(console)
    display.begin(0, 100)
    display.advance(40, 0.5)
    display.record(40, "dev", {"exact_match": 87.5})
    display.end()
    shown = console.file.getvalue()
    for text in ("40/100", "loss 0.5", "dev 87.50", "left"):
        assert text in shown


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (["step-0000050"], "the last saved step is 50"),
        ([], "Nothing was saved yet; the run will start from the beginning"),
    ],
)
def test_after_an_interruption_the_saved_step_is_printed(
    permalign, config, tmp_path, monkeypatch, states, message
):
    def killed(options, run, candidates, overwrite, device):
        run.mkdir()
        (run / "config.yaml").touch()
        for state in states:
            (run / "state" / state).mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("permalign.training.launch.train", killed)
    answer = permalign("train", "mine.yaml", "--run", "run")
    assert answer.exit_code == 130
    assert message in answer.stderr
    assert "permalign train --resume run" in answer.stderr


def test_an_interrupted_search_prints_how_to_resume_it(permalign, config, monkeypatch):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("permalign.training.tuning.train", stopped)
    answer = permalign(
        "tune", "mine.yaml", "--range", "training.learning_rate=1e-4:1e-2:log", "--trials", "3"
    )
    assert answer.exit_code == 130
    assert (
        "permalign tune mine.yaml --range training.learning_rate=1e-4:1e-2:log --trials 3 --out runs/tune-mine\n"
    ) in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "training.max_stepz=3"), "did you mean training.max_steps?"),
        (("--set", "training=3"), "training is 3, but must be a mapping from options to values"),
        (("--set", "training"), "is not a setting"),
    ],
)
def test_a_wrong_setting_is_wrong_usage(permalign, config, arguments, message):
    answer = permalign("train", "mine.yaml", *arguments)
    assert answer.exit_code == 2
    assert message in " ".join(answer.stderr.split())
    config.write_text(config.read_text() + "stepz: 3\n")
    assert permalign("train", "mine.yaml", "--set", "seed=2").exit_code == 1


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("source,target\n" + "".join(f"a b {i % 5},A B {i % 5}\n" for i in range(30)))
    return path


FEW_STEPS = ("--set", "training.max_steps=2", "--set", "training.evaluate_every=2")


def test_a_file_alone_is_trained_on_and_the_choice_is_explained(permalign, pairs, tmp_path):
    answer = permalign("train", "pairs.csv", *FEW_STEPS)
    assert answer.exit_code == 0
    assert answer.stdout == "runs/pairs-seed-0/model\n"
    assert "recipe: tagging, because every target has as many tokens" in answer.stderr
    assert "note: no splits are given, so examples were held out at random: 24 for training" in answer.stderr
    assert "another recipe, such as --recipe hard, or another --seed." in answer.stderr
    again = permalign("train", "runs/pairs-seed-0")
    assert (again.exit_code, "--resume runs/pairs-seed-0" in again.stderr) == (2, True)


def test_recipes_are_tried_and_the_choice_is_said(permalign, tmp_path, monkeypatch):
    (tmp_path / "pairs.csv").write_text(
        "source,target\n" + "".join(f"a b c {i % 5},B {i % 7} A\n" for i in range(110))
    )
    monkeypatch.setattr("permalign.training.recipe_trials.TRIAL_STEPS", 2)
    monkeypatch.setattr("permalign.training.recipes.MIN_STEPS", 2)
    monkeypatch.setattr(
        "permalign.training.launch._similarity_on_dev", lambda run: 60.0 if run.path.name == "ssnt" else 50.0
    )
    answer = permalign("train", "pairs.csv", *FEW_STEPS)
    assert answer.exit_code == 0, answer.stderr
    said = [line for line in answer.stderr.splitlines() if line.startswith(("recipe", "trials", "trying"))]
    assert said[0].startswith("recipe: exact is suggested by the data, because sequences are short")
    assert said[1].startswith("trials: exact, hard and ssnt are tried for 200 steps each")
    assert said[2:5] == [
        f"trying the recipe {name}" for name in ("exact (1 of 3)", "hard (2 of 3)", "ssnt (3 of 3)")
    ]
    assert said[5].startswith(
        "recipe: ssnt; after 2 steps, outputs on dev are similar to their targets by 50.0 % (exact)"
    )
    assert (
        yaml.safe_load(Path("runs/pairs-seed-0/config.yaml").read_text())["model"]["reorderer"]["kind"]
        == "none"
    )
    assert "--recipe seq2seq, or another --seed" in answer.stderr

    answer = permalign("tune", "pairs.csv", *FEW_STEPS, *TWO_TRIALS)
    assert answer.exit_code == 0, answer.stderr
    assert "recipe: ssnt; after 2 steps" in answer.stderr
    best = yaml.safe_load(Path("runs/tune-pairs/best.yaml").read_text())
    assert (best["model"]["reorderer"]["kind"], best["training"]["restarts"]) == ("none", 1)


def test_an_experiment_is_pointed_at_other_data(permalign, pairs):
    answer = permalign("train", "scan/soft", "--data", "pairs.csv", *FEW_STEPS, "--run", "runs/other")
    assert answer.exit_code == 0
    assert yaml.safe_load(Path("runs/other/config.yaml").read_text())["task"]["name"] == "own"


DATES = "date,iso\n" + "".join(f"{i % 9} may {i % 8},{i % 8}-05-{i % 9}\n" for i in range(72))


def test_the_tokens_of_other_data_are_chosen_and_explained(permalign, tmp_path):
    (tmp_path / "dates.csv").write_text(DATES)
    answer = permalign("train", "geoquery/ssnt", "--data", "dates.csv", *FEW_STEPS)
    assert answer.exit_code == 0, answer.stderr
    assert "tokens: words split at punctuation, because 100% of the training targets" in answer.stderr
    text = yaml.safe_load(Path("runs/geoquery-ssnt-dates-seed-0/config.yaml").read_text())["text"]
    assert [text[side]["pre_tokenizer"] for side in ("source", "target")] == ["punctuation", "punctuation"]


TWO_TRIALS = ("--trials", "2", "--range", "training.learning_rate=0.001:0.1:log")


@pytest.mark.parametrize(
    ("arguments", "folder", "head"),
    [
        (("dates.csv",), "tune-dates", "segments"),
        (("dates.csv", "--recipe", "ssnt"), "tune-dates-ssnt", "ssnt"),
        (("--data", "dates.csv"), "tune-dates", "segments"),
        (("geoquery/ssnt", "--data", "dates.csv"), "tune-geoquery-ssnt-dates", "ssnt"),
    ],
)
def test_own_data_is_tuned_as_it_is_trained(permalign, tmp_path, monkeypatch, arguments, folder, head):
    (tmp_path / "dates.csv").write_text(DATES.replace("date,iso", "when,written,iso").replace(" may", ",may"))
    columns = ("--source-column", "when,written", "--target-column", "iso")
    answer = permalign("tune", *arguments, *columns, *FEW_STEPS, *TWO_TRIALS)
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout == f"runs/{folder}/best.yaml\n"
    assert answer.stderr.count("tokens: words split at punctuation") == 1
    best = yaml.safe_load(Path(answer.stdout.strip()).read_text())
    assert best["model"]["head"]["kind"] == head
    assert best["task"]["source_column"] == "when,written"
    assert best["text"]["target"]["pre_tokenizer"] == "punctuation"
    assert best["task"]["path"] == str(tmp_path / "dates.csv")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    answer = permalign("train", f"../{answer.stdout.strip()}", "--run", "runs/best")
    assert answer.exit_code == 0, answer.stderr


def test_a_search_on_own_data_is_resumed_and_sent_to_a_cluster_with_its_arguments(
    permalign, tmp_path, monkeypatch
):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    sent = []
    (tmp_path / "dates.csv").write_text(DATES)
    arguments = [
        "tune", "dates.csv", "--recipe", "ssnt", "--source-column", "date", "--target-column", "iso",
        "--set", "training.max_steps=2", "--range", "training.learning_rate=0.001:0.1:log", "--trials", "3",
    ]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr("permalign.training.tuning.train", stopped)
        answer = permalign(*arguments)
    assert answer.exit_code == 130
    resumed = [*arguments, "--out", "runs/tune-dates-ssnt"]
    assert f"Resume with: permalign {' '.join(resumed)}\n" in answer.stderr
    monkeypatch.setattr(
        "permalign.reproduction.ray_engine.run_search_on_ray",
        lambda words, *args, **kwargs: sent.append(words),
    )
    arguments[-1] = "1"
    assert permalign(*arguments, "--engine", "ray").exit_code == 0
    assert sent == [[*arguments, "--out", "runs/tune-dates-ssnt"]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "your data, the name of an experiment"),
        (("nothing.csv",), 1, "nothing.csv: there is no such file"),
        (("scan/soft", "--recipe", "exact"), 2, "--recipe is for your own data"),
        (("pairs.csv", "--source-column", "en"), 1, "no column 'en'"),
        (("pairs.csv", "--set", "training.max_stepz=3"), 2, "did you mean training.max_steps?"),
    ],
)
def test_wrong_data_for_a_search_is_reported_as_for_a_run(permalign, pairs, arguments, code, message):
    for engine in ("local", "ray"):
        answer = permalign("tune", *arguments, "--engine", engine)
        assert answer.exit_code == code
        assert message in " ".join(answer.stderr.split())
    assert not Path("runs").exists()


def test_two_files_are_aligned(permalign, tmp_path):
    (tmp_path / "a.en").write_text("one two\n" * 20)
    (tmp_path / "a.de").write_text("eins zwei drei\n" * 20)
    answer = permalign("train", "a.en", "a.de", "--recipe", "ssnt", *FEW_STEPS)
    assert answer.exit_code == 0
    assert answer.stdout == "runs/a.en-a.de-seed-0/model\n"
    assert "dev  bleu" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing.csv",), 1, "nothing.csv: there is no such file"),
        (("pairs.cvs",), 1, "pairs.cvs: there is no such file. Did you mean pairs.csv?"),
        (("../nothing",), 1, "../nothing: there is no such file."),
        (("pairs.csv", "--recipe", "best"), 2, "'best' is not one of"),
        (("scan/soft", "--recipe", "exact"), 2, "--recipe is for your own data"),
        (("pairs.csv", "pairs.csv", "pairs.csv"), 2, "but found 3 of them"),
        (("pairs.csv", "--source-column", "en"), 1, "column"),
        ((), 2, "your data, the name of an experiment"),
    ],
)
def test_wrong_data_is_one_line(permalign, pairs, arguments, code, message):
    answer = permalign("train", *arguments)
    assert answer.exit_code == code
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
