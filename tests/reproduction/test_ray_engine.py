"""The same grid on a Ray cluster: the same results, and nothing is lost with a machine."""

import os
import re
import signal
import sys
import threading
import time

import pytest
import yaml
from tests.reproduction.grids import small_table
from tests.reproduction.test_grid import LONG, plan_of
from tests.training.small_run import SILENT, options, write_data
from typer.testing import CliRunner

from permalign.cli.app import app
from permalign.errors import PermalignError
from permalign.reproduction import ray_engine
from permalign.reproduction.grid import run_jobs
from permalign.reproduction.worker import BUSY
from permalign.training.launch import train
from permalign.training.run_directory import RunDirectory

LONGER = ("training.max_steps=500", "training.evaluate_every=250", "training.log_every=1")
"""A run that does not end before a busy machine has passed on that it should stop."""


def test_without_ray_a_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PermalignError, match=r"pip install .permalign\[cluster\]"):
        ray_engine.connect()


def test_a_process_that_is_killed_is_an_error_that_ray_retries(tmp_path):
    command = ["sh", "-c", "kill -9 $$"]
    with pytest.raises(ray_engine.ProcessKilledError, match="signal 9"):
        ray_engine.run_process(command, str(tmp_path / "log"), os.getcwd(), {})


def test_a_task_waits_for_the_lock_of_a_dying_process(tmp_path, monkeypatch):
    (tmp_path / "busy").touch()
    command = ["sh", "-c", f"rm {tmp_path}/busy 2>/dev/null && exit {BUSY}; exit 0"]
    assert ray_engine.run_process(command, str(tmp_path / "log"), os.getcwd(), {}) == 0
    monkeypatch.setattr(ray_engine, "BUSY_TIMEOUT", 0.0)
    assert (
        ray_engine.run_process(["sh", "-c", f"exit {BUSY}"], str(tmp_path / "log"), os.getcwd(), {}) == BUSY
    )


@pytest.fixture
def cluster(monkeypatch):
    """A cluster on this machine: a head without cores, and two nodes with one core each."""
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")  # a busy machine takes its time
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    ray.init(address=nodes.address, log_to_driver=False)  # or it may choose a node that is killed
    workers = [nodes.add_node(num_cpus=1) for _ in range(2)]  # in this thread: Ray sets handlers of signals
    yield nodes, workers
    ray.shutdown()
    nodes.shutdown()


def wait_for_step(run, step):
    """Wait until a run has so many records, however long its machine takes to start."""
    metrics = run / "metrics.jsonl"
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= step):
        time.sleep(0.05)


def busy(workers):
    """The node whose core is in use."""
    from ray._private.state import available_resources_per_node

    while True:
        free = available_resources_per_node()
        for worker in workers:
            if worker.node_id in free and not free[worker.node_id].get("CPU"):
                return worker
        time.sleep(0.05)


def weights(run):
    return (run / "model" / "model.safetensors").read_bytes()


def kill_busy_node(cluster, run):
    """Kill the node that trains a run, once it has its first checkpoint; returns the thread that does so."""
    nodes, workers = cluster

    def kill():
        wait_for_step(run, 80)
        nodes.remove_node(busy(workers), allow_graceful=False)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_node_that_is_killed_loses_nothing(tmp_path, cluster):
    table = small_table(tmp_path / "local")
    local, _ = plan_of(table, tmp_path / "local", "good/plain", settings=LONG)
    assert len(run_jobs(local.jobs, 1).finished) == 1

    plan, store = plan_of(table, tmp_path / "ray", "good/plain", settings=LONG)
    (job,) = plan.jobs
    killing = kill_busy_node(cluster, job.folder)
    outcome = ray_engine.run_jobs_on_ray(plan.jobs, None)
    assert not killing.is_alive()
    assert outcome.finished == [job.key.name], outcome
    assert weights(job.folder) == weights(local.jobs[0].folder)
    assert set(store.find(job.key.name).evaluations) == {"iid/dev plain"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_trial_whose_node_is_killed_is_resumed_from_its_last_checkpoint(tmp_path, cluster, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = options(
        write_data(tmp_path), max_steps=150, evaluate_every=75, log_every=1, stages=[], max_dev_examples=4
    )
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(values))
    run = tmp_path / "tune" / "trial-0000"
    killing = kill_busy_node(cluster, run)
    search = ["tune", "mine.yaml", "--range", "training.learning_rate=0.001:0.1:log", "--trials", "1"]
    answer = CliRunner().invoke(app, [*search, "--out", "tune", "--engine", "ray", "--processes", "1"])
    assert not killing.is_alive()
    log = (tmp_path / "tune" / "logs" / "search-0.log").read_text()
    assert answer.exit_code == 0, (answer.output, log)
    (step,) = re.findall(r"trial 0: resumed from step (\d+), training.learning_rate", log)
    assert int(step) >= 75
    assert "trial 0: complete" in log
    assert not (tmp_path / "tune" / "trial-0001").exists()
    train(RunDirectory(run).read_options(), tmp_path / "whole", display=SILENT)
    assert weights(run) == weights(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_failures_are_recorded_and_a_time_limit_leaves_runs_that_can_be_resumed(tmp_path, cluster):
    table = small_table(tmp_path)
    plan, _ = plan_of(table, tmp_path, "bad/plain")
    outcome = ray_engine.run_jobs_on_ray(plan.jobs, 1)
    assert outcome.failed == [job.key.name for job in plan.jobs]
    plan, _ = plan_of(table, tmp_path, "good/plain", settings=LONGER)
    thread = threading.Thread(
        target=lambda: (wait_for_step(plan.jobs[0].folder, 10), os.kill(os.getpid(), signal.SIGTERM)),
        daemon=True,
    )
    thread.start()
    outcome = ray_engine.run_jobs_on_ray(plan.jobs, 1)
    thread.join()
    assert outcome.interrupted
    assert outcome.unfinished == [plan.jobs[0].key.name], outcome
    again, store = plan_of(table, tmp_path, "good/plain", settings=LONGER)
    outcome = ray_engine.run_jobs_on_ray(again.jobs, 1)
    assert outcome.finished == [job.key.name for job in again.jobs], outcome
    assert set(store.find(plan.jobs[0].key.name).evaluations) == {"iid/dev plain"}
