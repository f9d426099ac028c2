import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.evaluation.runs import make_run, model_for, trained
from tests.models import small

from permalign import Transducer
from permalign.cli.app import app
from permalign.cli.predict import nested
from permalign.structures import Tree
from permalign.tasks.base import Example
from permalign.tasks.geoquery.generalization import generalize
from permalign.tasks.grammar import GrammarError
from permalign.tasks.scan_language import program_grammar
from permalign.training.trained_run import TrainedRun

LINES = ["a b", "", "c d e f", "zebra", "  ", "f", "b a d"]


@pytest.fixture(scope="module")
def model():
    return trained(60, small.examples(60))


@pytest.fixture(scope="module")
def run(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    return make_run(folder / "run", model, {"name": "own", "path": "nowhere.tsv"}).path


def command(*arguments):
    return [sys.executable, "-m", "permalign", "predict", *map(str, arguments)]


@pytest.fixture
def predict(monkeypatch, capsys, tmp_path):
    """Run the command in this process, with a file as standard input; returns its exit code and its output."""

    def run(*arguments, text):
        (tmp_path / "input").write_bytes(text)
        with (tmp_path / "input").open() as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            with pytest.raises(SystemExit) as end:
                app(["predict", *map(str, arguments)], prog_name="permalign")
        return end.value.code, *capsys.readouterr()

    return run


def test_outputs_are_in_the_order_of_the_lines_and_empty_lines_stay_empty(predict, run, model):
    code, out, _ = predict(run, "--batch-size", 2, text=("\n".join(LINES) + "\n").encode())
    assert code == 0
    filled = [line for line in LINES if line.split()]
    answers = dict(zip(filled, (prediction.text for prediction in model.predict(filled)), strict=True))
    assert out.split("\n") == [*(answers.get(line, "") for line in LINES), ""]


def test_the_last_line_needs_no_line_end_and_windows_line_ends_are_read(predict, run, model):
    code, out, _ = predict(run, text=b"a b\r\n\r\nc d")
    first, last = (prediction.text for prediction in model.predict(["a b", "c d"]))
    assert (code, out) == (0, f"{first}\n\n{last}\n")
    assert predict(run, text=b"")[:2] == (0, "")


def test_a_file_is_read_like_standard_input(predict, run, tmp_path):
    text = "\n".join(LINES).encode()
    expected = predict(run, text=text)
    (tmp_path / "sentences.txt").write_bytes(text)
    (tmp_path / "sentences.txt.gz").write_bytes(gzip.compress(text))
    for name in ("sentences.txt", "sentences.txt.gz"):
        assert predict(run, tmp_path / name, "--batch-size", 2, text=b"") == expected
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"a b\nc \xff d\n")
    code, out, errors = predict(run, broken, text=b"")
    assert (code, len(out.splitlines())) == (1, 1)  # the lines before it have their outputs
    assert f"{broken}, line 2: byte 3 of the line (0xff) is not UTF-8" in errors
    assert (
        "Did you mean" in predict("runs/nowhere", tmp_path / "sentence.txt", text=b"")[2]
    )  # before a model is read


def test_a_slow_writer_gets_every_output_immediately(run, model):
    process = subprocess.Popen(command(run), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ)
    try:
        for line in ("a b", "c d e"):
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline().decode()  # while standard input is still open
            assert answer == f"{model.predict([line])[0].text}\n"
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def test_json_has_scores_alternatives_and_explanations(predict, run, model):
    code, out, _ = predict(run, "--json", "--explain", "--n-best", 2, text=b"a b c\n\n")
    assert code == 0
    first, second = map(json.loads, out.splitlines())
    wanted = model.predict(["a b c"], beam=2, n_best=2, explain=True)[0]
    assert (first["line"], first["source"], first["output"]) == (1, "a b c", wanted.text)
    assert first["score"] == pytest.approx(wanted.score, abs=1e-4)
    outputs = [alternative["output"] for alternative in first["alternatives"]]
    assert outputs == [alternative.text for alternative in wanted.alternatives]
    assert first["explanation"]["order"] == list(wanted.explanation.order)

    def order(tree):
        if isinstance(tree, int):
            return [tree]
        rule, *children = tree
        return [token for child in (children if rule == "S" else children[::-1]) for token in order(child)]

    assert order(first["explanation"]["tree"]) == list(wanted.explanation.order)
    assert second == {"line": 2, "source": "", "output": "", "score": None, "unknown": []}


def test_words_that_were_never_seen_are_named(predict, run, model):
    code, out, errors = predict(run, "--json", text=b"a b\na zebra b zebra gnu\n")
    assert code == 0
    assert [json.loads(line)["unknown"] for line in out.splitlines()] == [[], ["zebra", "gnu"]]
    assert errors == "warning: line 2 has words that the model has never seen: zebra, gnu\n"
    assert model.predict(["a zebra"])[0].unknown == ("zebra",)


def test_all_of_a_file_is_evaluated_and_nothing_is_overwritten(run, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text("source,target,split\n" + "a b,X,train\nc zebra,Y,test\nd,Z,dev\n")
    names = []
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            app(["evaluate", str(run), "--file", str(new), "--json"], prog_name="permalign")
        record = json.loads(capsys.readouterr().out)
        assert (end.value.code, record["examples"], record["unknown_tokens"]) == (0, 3, 1)
        assert "in the sources, 1 of 5 tokens (20.0%) are unknown, most often: zebra." in record["notes"]
        names.append(record["predictions"])
    assert names == [str(run / "predictions" / "file" / f"{name}.jsonl") for name in ("new", "new-2")]


def test_phrases_in_trees_are_lists_of_their_tokens():
    assert nested(Tree(0, 4, "I", (Tree(0, 2), Tree(2, 4, "S", (Tree(2, 3), Tree(3, 4)))))) == [
        "I",
        [0, 1],
        ["S", 2, 3],
    ]


def test_text_output_has_explanations_and_alternatives(predict, run, model):
    code, out, _ = predict(run, "--explain", "--n-best", 2, text=b"a b c\n\n")
    wanted = model.predict(["a b c"], beam=2, n_best=2, explain=True)[0]
    assert code == 0
    best, second, *drawn = out.split("\n")
    assert best.split("\t")[::2] == ["1", wanted.text]
    assert second.split("\t")[::2] == ["1", wanted.alternatives[0].text]
    assert float(best.split("\t")[1]) > float(second.split("\t")[1])
    assert "\n".join(drawn) == wanted.explanation.draw() + "\n\n2\t\t\n\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a b\nc \xff d\n", "standard input, line 2: byte 3 of the line (0xff) is not UTF-8"),
        (b"a b\n" + b"c " * 600_000, "standard input, line 2: the line is longer than 1,000,000 bytes"),
        (b"a b\na\rb\n", "standard input, line 2: the line has a carriage return"),
    ],
)
def test_invalid_text_is_an_error_after_the_lines_before_it_are_processed(predict, run, model, text, words):
    code, out, errors = predict(run, text=text)
    assert (code, out) == (1, f"{model.predict(['a b'])[0].text}\n")
    assert words in errors
    assert "Traceback" not in errors


def test_a_reader_may_close_the_pipe(run):
    process = subprocess.Popen(
        command(run, "--batch-size", 1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    process.stdin.write(b"a b\n")
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write(b"c d\n" * 50)
    process.stdin.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert b"Traceback" not in errors


def test_outputs_are_constrained_by_grammars_and_saved_models_are_loaded(predict, tmp_path):
    programs = ["and jump twice walk", "after run walk around left", "thrice look"]
    examples = [Example(("a", "b"), tuple(text.split()), "") for text in programs]
    directory = make_run(tmp_path / "run", model_for(examples), {"name": "scan-sp"})
    code, out, _ = predict(directory.path, "--constrained", text=b"a b\nb\n")
    assert code == 0
    for line in out.splitlines():
        assert program_grammar().read(line.split())
    code, out, errors = predict(directory.path, "--constrained", "--grammar", "generalized", text=b"a b\n")
    assert (code, out) == (2, "")
    assert "scan-sp does not say how its grammar generalizes" in errors
    bare = shutil.copytree(directory.model, tmp_path / "model")
    assert predict(bare, text=b"a b\n")[0] == 0
    code, out, errors = predict(bare, "--constrained", text=b"a b\n")
    assert (code, out) == (1, "")
    assert "--constrained needs a run with a config.yaml" in errors


def test_a_run_has_three_grammars(tmp_path, data_dir):
    task = {"name": "geoquery", "data_dir": str(data_dir)}
    examples = [Example(("a",), ("most", "state"), "")]
    run = TrainedRun(make_run(tmp_path / "run", model_for(examples), task, train="temp/train").path)
    training, generalized, whole = (run.constraint(source) for source in ("training", "generalized", "task"))
    assert {*training.rules} < {*whole.rules}
    assert {*generalized.rules} == {*generalize(training).rules}
    river = ["most", "river", "traverse_2", "countryid_ENTITY"]  # no program of temp/train has most rivers
    assert not training.state([]).allowed.isdisjoint(river[:1])
    with pytest.raises(GrammarError):
        training.read(river)
    assert generalized.linearize(generalized.read(river)) == whole.linearize(whole.read(river)) == river


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("RUN", "--beam", "2", "--n-best", "3"), 2, "--n-best 3 needs a --beam of at least 3"),
        (("RUN", "--constrained"), 2, "own has no grammar"),
        (("RUN", "--checkpoint", "best"), 2, "unknown checkpoint"),
        (("RUN", "--device", "abacus"), 2, "this machine has no device 'abacus'"),
        (("RUN", "--device", "meta"), 2, "this machine has no device 'meta'"),
        (("runs/a/model",), 1, "runs/a/model: there is no such run or model"),
        (("tests/nowhere",), 1, "tests/nowhere: there is no such run or model"),
        ((), 2, "missing argument"),
    ],
)
def test_wrong_usage_is_an_error(predict, run, monkeypatch, arguments, code, words):
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setattr("permalign.models.saving.hf_hub_download", None)  # the network is not asked
    words_given = [str(run) if argument == "RUN" else argument for argument in arguments]
    exit_code, out, errors = predict(*words_given, text=b"a\n")
    assert (exit_code, out) == (code, "")
    assert words in " ".join(errors.split())


def test_a_closed_standard_input_is_an_error(run):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command(run)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 1
    assert "standard input is closed" in done.stderr


def test_a_line_too_long_for_the_memory_is_an_error_after_the_lines_before_it(
    predict, run, model, monkeypatch
):
    enough = Transducer.predict

    def short_of_memory(self, sentences, **options):
        if any(len(sentence) > 5 for sentence in sentences):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
        return enough(self, sentences, **options)

    monkeypatch.setattr(Transducer, "predict", short_of_memory)
    code, out, errors = predict(run, text=b"a b\nc d\na b c d e f\n")
    assert (code, out.splitlines()) == (1, [prediction.text for prediction in model.predict(["a b", "c d"])])
    assert "standard input, line 3: the line has 6 tokens, too many for the available memory" in errors


def test_predictions_that_cannot_be_written_are_reported_before_anything_is_evaluated(
    run, tmp_path, capsys, monkeypatch
):
    def evaluate(*arguments):
        raise AssertionError("nothing may be evaluated")

    monkeypatch.setattr("permalign.training.trained_run.TrainedRun.evaluate", evaluate)
    monkeypatch.setattr("permalign.cli.error_messages._discard_pending_output", lambda: None)
    blocked, pairs = tmp_path / "blocked", tmp_path / "pairs.tsv"
    blocked.write_text("")
    pairs.write_text("source\ttarget\na b\tB A\n")
    command = ["evaluate", str(run), "--file", str(pairs), "--output", str(blocked / "folder")]
    with pytest.raises(SystemExit) as end:
        app(command, prog_name="permalign")
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        f"permalign: {blocked / 'folder'}: cannot be written to (Not a directory). Choose a folder for the "
        "predictions with --output.\n"
    )
