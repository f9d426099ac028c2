"""Commands about runs and the installation: runs, plot, profile, schema, doctor, completion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from tests.training.small_run import SILENT, options, write_data
from typer.testing import CliRunner

import permalign as package
from permalign.cli.app import app
from permalign.errors import PermalignError
from permalign.openmp import thread_warning, use_passive_threads
from permalign.options.schema import config_schema
from permalign.training.launch import train

EXPERIMENTS = Path(package.__file__).parent / "experiments"


@pytest.fixture
def permalign():
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two finished runs."""
    folder = tmp_path_factory.mktemp("runs")
    values = options(write_data(folder / "data"), max_steps=6, evaluate_every=3, stages=[])
    for name in ("a", "b"):
        train(values, folder / name, display=SILENT)
    return folder


def test_runs_are_listed_with_their_best_metric(permalign, folder):
    answer = permalign("runs", folder)
    assert answer.exit_code == 0, answer.stderr
    header, *rows = answer.stdout.splitlines()
    assert header.split()[0] == "RUN"
    assert sorted(row.split()[0] for row in rows) == [f"{folder}/a", f"{folder}/b"]
    assert all("separable, ssnt" in row and "exact_match" in row and "6/6" in row for row in rows)
    records = [json.loads(line) for line in permalign("runs", folder, "--json").stdout.splitlines()]
    scores = [json.loads(line) for line in (folder / "a" / "metrics.jsonl").read_text().splitlines()]
    best = max(record["exact_match"] for record in scores if record["kind"] == "dev")
    assert next(record for record in records if record["path"].endswith("a"))["best"] == best


def test_a_model_that_was_made_of_others_is_listed_with_these(permalign, folder, tmp_path):
    members = folder / "a", folder / "b"
    assert permalign("ensemble", *members, "--out", tmp_path / "both").exit_code == 0
    (record,) = (json.loads(line) for line in permalign("runs", tmp_path, "--json").stdout.splitlines())
    assert record["model"] == f"ensemble of {members[0]}, {members[1]}"
    assert record["step"] is None


def test_a_damaged_or_missing_run_is_no_obstacle(permalign, folder, tmp_path):
    assert permalign("runs", tmp_path / "nowhere").exit_code == 1
    answer = permalign("runs", tmp_path)
    assert (answer.exit_code, answer.stdout) == (0, "")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "environment.json").write_text("{")
    (tmp_path / "x" / "config.yaml").write_text("a: [")
    (tmp_path / "x" / "metrics.jsonl").write_text('{"step": 3\n[]\n')
    answer = permalign("runs", tmp_path)
    assert (answer.exit_code, answer.stdout.splitlines()[1].split()[1]) == (0, "?")


def test_learning_curves_of_several_runs_are_plotted(permalign, folder, tmp_path):
    answer = permalign("plot", folder / "a", folder / "b", "--out", tmp_path / "curves.png")
    assert (answer.exit_code, answer.stdout) == (0, f"{tmp_path / 'curves.png'}\n")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    answer = permalign("plot", folder / "a", "--metric", "blue", "--out", tmp_path / "x.png")
    assert (answer.exit_code, "unknown metric" in answer.stderr) == (2, True)
    assert permalign("plot", folder / "a", "--out", tmp_path / "x.jpg").exit_code == 2
    assert permalign("plot", tmp_path).exit_code == 1


def test_a_combined_run_has_no_learning_curve(permalign, folder, tmp_path):
    ensemble = tmp_path / "ensemble"
    permalign("ensemble", folder / "a", folder / "b", "--out", ensemble)
    answer = permalign("plot", folder / "a", ensemble, "--out", tmp_path / "x.png")
    assert (answer.exit_code, "is made of other models and was not trained" in answer.stderr) == (1, True)


def test_a_profile_has_every_section_and_changes_nothing(permalign, folder):
    before = {path: path.read_bytes() for path in (folder / "a").rglob("*") if path.is_file()}
    answer = permalign("profile", folder / "a", "--steps", "1", "--json")
    assert answer.exit_code == 0, answer.stderr
    seconds = json.loads(answer.stdout)["seconds"]
    assert all(seconds[name] > 0 for name in ("encoder", "reorderer", "head", "backward", "optimizer"))
    assert seconds["dev evaluation"] > 0
    assert {path: path.read_bytes() for path in (folder / "a").rglob("*") if path.is_file()} == before


def test_every_shipped_experiment_satisfies_the_schema():
    validator = Draft202012Validator(config_schema())
    files = sorted(EXPERIMENTS.rglob("*.yaml"))
    assert files
    for file in files:
        assert list(validator.iter_errors(yaml.safe_load(file.read_text()))) == [], file


@pytest.mark.parametrize(
    "wrong",
    [
        {"training": {"max_stepz": 3}},
        {"training": {"max_steps": -3}},
        {"model": {"head": {"kind": "snt"}}},
        {"task": {"name": "aritmetic"}},
        {"training": {"trackers": ["tensorbored"]}},
    ],
)
def test_the_schema_finds_mistakes(wrong):
    assert not Draft202012Validator(config_schema()).is_valid(wrong)


def test_schema_and_version_are_printed(permalign):
    assert json.loads(permalign("schema").stdout) == config_schema()
    assert permalign("--version").stdout == f"{package.__version__}\n"


def test_the_doctor_finds_what_is_there(permalign, monkeypatch, tmp_path):
    monkeypatch.setenv("PERMALIGN_DATA", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    found = json.loads(permalign("doctor", "--json").stdout)
    assert found["findings"]["versions"]["permalign"] == package.__version__
    assert found["findings"]["data"]["datasets"] == "none"
    assert any(sentence.startswith("OMP_NUM_THREADS is 1000") for sentence in found["advice"])
    text = str(package.doctor())
    assert "versions\n" in text
    assert "  - `permalign data fetch" in text


def test_threads_wait_passively_unless_the_user_chose(monkeypatch):
    for setting in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.setenv(setting, "7")
        monkeypatch.delenv(setting)
    use_passive_threads()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.delenv("KMP_BLOCKTIME")
    monkeypatch.setenv("GOMP_SPINCOUNT", "100")
    use_passive_threads()
    assert "OMP_WAIT_POLICY" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert thread_warning() is None


def test_the_command_line_offers_completion():
    environment = {**os.environ, "_PERMALIGN_COMPLETE": "complete_bash", "COMP_WORDS": "permalign ense"}
    command = [sys.executable, "-m", "permalign"]
    done = subprocess.run(
        command, env={**environment, "COMP_CWORD": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["ensemble"]


def test_a_tracker_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    values = options(write_data(tmp_path / "data"), max_steps=2, stages=[], trackers=["wandb"])
    with pytest.raises(PermalignError, match="pip install wandb"):
        train(values, tmp_path / "run", display=SILENT)
