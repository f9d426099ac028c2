"""Weights & Biases and MLflow: what they are told, and that a resumed run goes on in the same place."""

import sqlite3
import sys
from types import SimpleNamespace

import pytest
from tests.training.small_run import SILENT, options, write_data

from permalign.errors import PermalignError
from permalign.training.launch import resume, train
from permalign.training.progress_display import Display


class StopAtStepEight(Display):
    def record(self, step, kind, numbers):
        if step == 8 and kind == "dev":
            raise KeyboardInterrupt


def interrupt_and_resume(folder, tracker):
    """Train a run that is interrupted once; returns its folder."""
    values = options(write_data(folder / "data"), stages=[], trackers=[tracker])
    with pytest.raises(KeyboardInterrupt):
        train(values, folder / "run", display=StopAtStepEight())
    resume(folder / "run", display=SILENT)
    return folder / "run"


def test_a_resumed_run_is_the_same_run_of_wandb(tmp_path, monkeypatch):
    started, logged, stored = [], [], {}
    opened = SimpleNamespace(log=lambda values, step: logged.append(step), finish=lambda: None)

    def init(**arguments):
        started.append(arguments)
        return opened

    config = SimpleNamespace(update=lambda values, allow_val_change: stored.update(values))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init, config=config))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run = interrupt_and_resume(tmp_path, "wandb")
    first, second = started
    assert first["id"] == second["id"] == (run / "wandb" / "run-id").read_text()
    assert (first["project"], first["name"], first["mode"], first["resume"]) == (
        "permalign",
        "run",
        "offline",
        None,
    )
    assert stored["model.head.kind"] == "ssnt"
    assert max(logged) == 12
    monkeypatch.setenv("WANDB_MODE", "online")
    train(
        options(write_data(tmp_path / "data"), max_steps=2, stages=[], trackers=["wandb"]), tmp_path / "other"
    )
    assert started[2]["id"] != first["id"]
    assert (started[2]["mode"], started[2]["resume"]) == ("online", "allow")


def test_a_resumed_run_is_the_same_run_of_mlflow(tmp_path, monkeypatch):
    started, stored, logged = [], [], []

    def start_run(run_id, **arguments):
        started.append(run_id)
        return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    limits = SimpleNamespace(MAX_PARAM_VAL_LENGTH=6000, MAX_PARAMS_TAGS_PER_BATCH=1000)
    mlflow = SimpleNamespace(
        set_tracking_uri=lambda uri: None,
        search_experiments=lambda filter_string: [],
        create_experiment=lambda **arguments: "1",
        start_run=start_run,
        log_params=stored.append,
        log_metrics=lambda values, step: logged.append(step),
        end_run=lambda: None,
        utils=SimpleNamespace(validation=limits),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    run = interrupt_and_resume(tmp_path, "mlflow")
    assert started == [None, "abc"]
    assert (run / "mlflow" / "run-id").read_text() == "abc"
    assert [values["model.head.kind"] for values in stored] == ["ssnt"]  # MLflow takes options only once
    assert max(logged) == 12


def test_a_tracker_that_cannot_be_started_is_an_error_of_one_line(tmp_path, monkeypatch):
    def init(**arguments):
        raise RuntimeError("No API key configured.\nUse `wandb login` to log in.")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    values = options(write_data(tmp_path / "data"), max_steps=2, stages=[], trackers=["wandb"])
    with pytest.raises(PermalignError) as caught:
        train(values, tmp_path / "run", display=SILENT)
    assert str(caught.value) == "training.trackers: wandb cannot be started: No API key configured."


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own
def test_the_real_mlflow_has_one_run_with_all_steps(tmp_path):
    pytest.importorskip("mlflow")
    run = interrupt_and_resume(tmp_path, "mlflow")
    database = sqlite3.connect(run / "mlflow" / "mlflow.db")
    assert database.execute("select name, status from runs").fetchall() == [("run", "FINISHED")]
    steps = database.execute("select distinct step from metrics where key = 'dev/exact_match' order by step")
    assert steps.fetchall() == [(4,), (8,), (12,)]


def test_the_real_wandb_writes_both_sessions_under_one_identifier(tmp_path):
    pytest.importorskip("wandb")
    run = interrupt_and_resume(tmp_path, "wandb")
    identifier = (run / "wandb" / "run-id").read_text()
    assert len(list(run.glob(f"wandb/offline-run-*/run-{identifier}.wandb"))) == 2
