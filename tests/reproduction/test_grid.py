import os
import shutil
import signal
import threading
import time

import pytest
from tests.interrupts import accept_interrupts
from tests.reproduction.grids import small_table

from permalign.reproduction.grid import log_file, make_plan, run_jobs, start
from permalign.reproduction.records import RunStore
from permalign.reproduction.report import write_report
from permalign.reproduction.worker import INTERRUPTED
from permalign.training.state import latest_state, read_progress

LONG = ("training.max_steps=150", "training.evaluate_every=75", "training.log_every=1")


def plan_of(table, folder, pattern="*/*", seeds=(0,), settings=()):
    store = RunStore(folder / "results" / "runs.jsonl")
    return make_plan(table.select([pattern]), seeds, settings, folder / "runs", store), store


def wait_for_step(job, step):
    metrics = job.folder / "metrics.jsonl"
    end = time.monotonic() + 60
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= step):
        assert time.monotonic() < end, log_file(job).read_text()
        time.sleep(0.01)


def step_of(job):
    return read_progress(latest_state(job.folder / "state")).step


def test_cells_that_share_a_run_are_one_job_and_seeds_come_one_after_the_other(tmp_path):
    plan, _ = plan_of(small_table(tmp_path), tmp_path, seeds=(0, 1))
    assert [(job.key.seed, len(job.evaluations)) for job in plan.jobs] == [(0, 2), (0, 1), (1, 2), (1, 1)]
    assert len({job.key.name for job in plan.jobs}) == 4


def test_wrong_options_are_reported_before_anything_runs(tmp_path):
    plan, _ = plan_of(small_table(tmp_path), tmp_path, settings=["training.max_stepz=1"])
    assert plan.jobs == []
    assert set(plan.invalid) == {"good/plain", "good/greedy", "bad/plain"}
    assert "did you mean training.max_steps?" in plan.invalid["good/plain"]


def test_a_failure_does_not_stop_other_runs_and_finished_runs_are_not_repeated(tmp_path):
    table = small_table(tmp_path)
    plan, store = plan_of(table, tmp_path)
    messages = []
    outcome = run_jobs(plan.jobs, 2, say=messages.append)
    assert [name.split("-")[0] for name in outcome.finished] == ["arithmetic"], messages
    assert len(outcome.failed) == 1
    assert any("max_tokens" in line for line in messages)

    markdown = write_report(table, store.read(), tmp_path / "results").read_text()
    good, bad = (line for line in markdown.splitlines() if line.startswith(("| A system", "| One that")))
    assert "*50.0*" in good
    assert "not run" not in good
    assert "failed" in bad
    record = store.find(outcome.finished[0])
    assert record.dev["split"] == "iid/dev"
    assert record.training["ended"] == "all 5 steps are done"
    assert set(record.evaluations) == {"iid/dev plain", "iid/dev greedy"}

    again, _ = plan_of(table, tmp_path)
    assert again.done == {"good/plain": [0], "good/greedy": [0]}
    assert [job.key.name for job in again.jobs] == outcome.failed
    finished, _ = plan_of(table, tmp_path, "good/*")
    assert finished.jobs == []
    assert run_jobs(finished.jobs, 2).finished == []


def test_a_run_that_is_trained_again_with_other_results_keeps_no_evaluation_of_the_former_model(tmp_path):
    table = small_table(tmp_path)
    plan, store = plan_of(table, tmp_path, "good/plain")
    (name,) = run_jobs(plan.jobs, 1).finished
    record = store.find(name)
    record.dev["scores"] = [
        [step, 1.0] for step, _ in record.dev["scores"]
    ]  # as another version may have had
    record.evaluations = {"len/test plain": record.evaluations["iid/dev plain"]}
    store.path.write_text(record.to_json() + "\n", "utf-8")
    shutil.rmtree(plan.jobs[0].folder)
    plan, _ = plan_of(table, tmp_path, "good/plain")
    assert run_jobs(plan.jobs, 1).finished == [name]
    assert set(store.find(name).evaluations) == {"iid/dev plain"}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The weights of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    plan, _ = plan_of(small_table(folder), folder, "good/plain", settings=LONG)
    assert len(run_jobs(plan.jobs, 1).finished) == 1
    return (plan.jobs[0].folder / "model" / "model.safetensors").read_bytes()


@pytest.fixture
def interruptible():
    """Let SIGINT interrupt the tests, even in a background job."""
    before = accept_interrupts()
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_control_c_saves_runs_and_they_resume_exactly(tmp_path, uninterrupted):
    table = small_table(tmp_path)
    plan, store = plan_of(table, tmp_path, "good/plain", settings=LONG)
    (job,) = plan.jobs

    def interrupt():
        wait_for_step(job, 10)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome = run_jobs(plan.jobs, 1)
    thread.join()
    assert outcome.interrupted
    assert outcome.unfinished == [job.key.name]
    assert 10 <= step_of(job) < 150
    assert store.find(job.key.name) is None

    again, _ = plan_of(table, tmp_path, "good/plain", settings=LONG)
    assert run_jobs(again.jobs, 1).finished == [job.key.name]
    assert (job.folder / "model" / "model.safetensors").read_bytes() == uninterrupted


def test_runs_beyond_the_time_limit_are_unfinished(tmp_path):
    plan, _ = plan_of(small_table(tmp_path), tmp_path, "good/plain", seeds=(0, 1, 2))
    outcome = run_jobs(plan.jobs, 1, minutes=0.0)
    assert outcome.unfinished == [job.key.name for job in plan.jobs]
    assert not outcome.interrupted


def test_a_process_ends_with_its_parent_and_holds_the_lock_of_its_run(tmp_path):
    plan, _ = plan_of(
        small_table(tmp_path), tmp_path, "good/plain", settings=("training.max_steps=100000", *LONG[1:])
    )
    (job,) = plan.jobs
    process = start(job)
    try:
        wait_for_step(job, 5)
        other = run_jobs([job], 1)
        assert (other.unfinished, other.failed) == ([job.key.name], [])
        process.stdin.close()
        assert process.wait(60) == INTERRUPTED
    finally:
        process.kill()
    assert step_of(job) >= 5
