"""When training stops, and which states of a run are found, kept and removed; without training a model."""

import json
import os

import pytest

from permalign.options.run import TrainingOptions
from permalign.training.early_stopping import reason_to_stop
from permalign.training.state import (
    Progress,
    last_saved_step,
    latest_progress,
    latest_state,
    remove_states,
    step_folders,
)


def reason(progress, cpu_seconds=0.0, **training):
    return reason_to_stop(progress, TrainingOptions(**training), 10, "bleu", cpu_seconds)


def test_training_stops_after_the_last_step_and_not_before():
    assert reason(Progress(step=9)) is None
    assert reason(Progress(step=10)) == "all 10 steps are done"
    assert reason(Progress(step=11)) == "all 10 steps are done"


def test_patience_counts_evaluations_without_improvement():
    assert reason(Progress(step=5, waited=3)) is None
    assert reason(Progress(step=5, waited=2), patience=3) is None
    assert reason(Progress(step=5, waited=3), patience=3) == "bleu has not improved for 3 evaluations"
    assert reason(Progress(step=5, waited=4), patience=3) == "bleu has not improved for 4 evaluations"


def test_cpu_time_is_counted_in_minutes():
    assert reason(Progress(step=5), cpu_seconds=1e9) is None
    assert reason(Progress(step=5), cpu_seconds=89.9, max_cpu_minutes=1.5) is None
    assert reason(Progress(step=5), 90.0, max_cpu_minutes=1.5) == "1.5 minutes of CPU time are used up"


def test_patience_starts_again_with_every_improvement():
    progress, waited = Progress(), []
    for progress.step, score in enumerate([0.0, 0.0, 1.0, 0.5, 1.0, 2.0]):
        progress.judge(score, keep=1)
        waited.append(progress.waited)
    assert waited == [0, 1, 0, 1, 2, 0]
    assert progress.best == 2.0
    assert progress.kept == [(5, 2.0)]


def add_states(folder, *steps):
    for step in steps:
        (folder / f"step-{step:07d}").mkdir(parents=True)


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_the_latest_state_has_the_most_steps(tmp_path):
    assert latest_state(tmp_path / "nothing") is None
    add_states(tmp_path, 9_999_999, 10_000_000, 8)  # names of steps may differ in length
    (tmp_path / "step-0000009.bak").mkdir()
    (tmp_path / "step-99999999").write_text("a file")
    assert [path.name for path in step_folders(tmp_path)] == ["step-10000000", "step-9999999", "step-0000008"]
    assert latest_state(tmp_path) == tmp_path / "step-10000000"


def test_the_state_of_a_step_and_the_one_before_it_are_kept(tmp_path):
    add_states(tmp_path, 2, 4, 6, 8)
    (tmp_path / ".step-0000010.partial").mkdir()
    (tmp_path / "notes").mkdir()
    remove_states(tmp_path, 6)
    assert names(tmp_path) == {"step-0000004", "step-0000006", "notes"}


def test_a_run_is_resumed_from_its_own_state_before_those_of_its_attempts(tmp_path):
    assert last_saved_step(tmp_path) is None
    for seed, (step, time) in enumerate([(30, 2_000), (20, 3_000), (10, 1_000)]):
        add_states(tmp_path / "attempts" / f"seed-{seed}" / "state", step)
        os.utime(tmp_path / "attempts" / f"seed-{seed}", (time, time))
    assert last_saved_step(tmp_path) == 20  # of the attempt that was written last
    add_states(tmp_path / "state", 5)
    assert last_saved_step(tmp_path) == 5


def test_the_latest_progress_is_that_of_a_state_that_can_be_read(tmp_path):
    assert latest_progress(tmp_path) is None
    add_states(tmp_path, 4, 8)
    (tmp_path / "step-0000008" / "state.json").write_text("{")
    record = {"progress": {"step": 4, "kept": [[4, 50]]}}
    (tmp_path / "step-0000004" / "state.json").write_text(json.dumps(record))
    assert latest_progress(tmp_path) == Progress(step=4, kept=[(4, 50.0)])


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_as_many_checkpoints_are_kept_as_asked_for(keep):
    progress = Progress()
    for progress.step, score in enumerate([3.0, 1.0, 4.0, 1.0]):
        progress.judge(score, keep)
    assert progress.kept == [(2, 4.0), (0, 3.0), (3, 1.0)][:keep]
