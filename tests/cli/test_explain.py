"""``permalign explain`` as a user calls it."""

import json
import subprocess
import sys

import pytest
from tests.models.small import make
from typer.testing import CliRunner

from permalign.cli.app import app


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    make("exact", "tagging").save_pretrained(folder / "model")
    return str(folder)


def permalign(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_sentence_is_explained(run):
    result = permalign("explain", run, "a b c")
    assert result.exit_code == 0
    for heading in ("Tree", "Order", "Segments", "Confidence"):
        assert heading in result.stdout


def test_a_target_is_explained(run):
    result = permalign("explain", run, "a b c", "--target", "C B A")
    assert "→ C B A (given target)" in result.stdout
    assert "Confidence, given sentence and target" in result.stdout


def test_decoding_variants_are_compared(run):
    result = permalign("explain", run, "a b c", "--compare")
    assert "Ways to decode" in result.stdout or "agree on the tree" in result.stdout


def test_files_are_written(run, tmp_path):
    picture, page = tmp_path / "a.svg", tmp_path / "a.html"
    assert permalign("explain", run, "a b", "--svg", picture, "--html", page, "--compare").exit_code == 0
    assert picture.read_text("utf-8").startswith("<svg")
    assert "<!doctype html>" in page.read_text("utf-8")


def test_json_prints_nothing_but_json(run):
    record = json.loads(permalign("explain", run, "a b", "--json", "--compare").stdout)
    assert record["source"] == ["a", "b"]
    assert [variant["name"] for variant in record["comparison"]["variants"]] == [
        "greedy",
        "viterbi",
        "permutation",
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["", "a b"], "is not a folder"),
        ([None, " "], "sentence is empty"),
        ([None, "a b", "--target", "A B C"], "2 source tokens and 3 output tokens"),
        ([None, "a b", "--svg", "/nowhere/a.svg"], "/nowhere/a.svg"),
    ],
)
def test_errors_are_reported_without_a_stack_trace(run, tmp_path, arguments, reason):
    folder = tmp_path / "missing" if arguments[0] == "" else run
    result = permalign("explain", folder, *arguments[1:])
    assert result.exit_code == 1
    assert reason in result.stderr
    assert "Traceback" not in result.stderr


def test_help_shows_examples_without_waiting_for_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from permalign.cli.app import app;"
        "print(CliRunner().invoke(app, ['explain', '--help']).stdout); assert 'torch' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "permalign explain runs/geo" in shown
