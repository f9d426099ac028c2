import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from tests.interrupts import accept_interrupts
from tests.training.small_run import SILENT, options, remains, write_data

from permalign.errors import DataError
from permalign.reorderers.tree import TreeReorderer
from permalign.training.launch import resume, train
from permalign.training.progress_display import Display
from permalign.training.state import latest_state, read_progress

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}


def killed_everywhere(folder, every):
    data = write_data(folder)
    command = [sys.executable, "-m", "tests.training.killed_runs", str(data), str(folder), str(every)]
    answer = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split(maxsplit=1)


def test_a_run_that_is_killed_while_writing_gives_the_same_result(tmp_path):
    kills, different = killed_everywhere(tmp_path, every=13)
    assert int(kills) > 5
    assert different.strip() == "[]"


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_write_gives_the_same_result(tmp_path):
    kills, different = killed_everywhere(tmp_path, every=1)
    assert int(kills) > 80
    assert different.strip() == "[]"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """An uninterrupted run of 200 steps; returns its config and its files."""
    folder = tmp_path_factory.mktemp("whole")
    config = folder / "config.yaml"
    values = options(write_data(folder), max_steps=200, evaluate_every=50, gradient_accumulation_steps=1)
    config.write_text(yaml.safe_dump(values))
    train(values, folder / "run", display=SILENT)
    return config, remains(folder / "run")


def wait_for_step(run, step, process):
    while process.poll() is None:
        metrics = run / "metrics.jsonl"
        if metrics.exists() and f'"step": {step},' in metrics.read_text():
            return
        time.sleep(0.01)


def test_a_run_that_is_killed_and_resumed_gives_the_same_result(uninterrupted, tmp_path):
    config, expected = uninterrupted
    run = tmp_path / "run"
    command = [sys.executable, "-m", "permalign", "train"]
    process = subprocess.Popen(
        [*command, str(config), "--run", str(run)], env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    wait_for_step(run, 102, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    resume(run, display=SILENT)
    assert remains(run) == expected


def test_ctrl_c_saves_the_run_and_prints_how_to_resume_it(uninterrupted, tmp_path):
    config, expected = uninterrupted
    run = tmp_path / "run"
    command = [sys.executable, "-m", "permalign", "train", str(config), "--run", str(run)]
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, preexec_fn=accept_interrupts
    )
    wait_for_step(run, 60, process)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1]
    assert process.returncode == 130
    assert f"permalign train --resume {run}" in errors
    state = latest_state(run / "state")
    assert state.name != "step-0000050", "it was saved where it was interrupted"
    assert errors.index("saving after this step; press Ctrl-C again") < errors.index(
        f"Saved at step {int(state.name[5:])}."
    )
    resume(run, display=SILENT)
    assert remains(run) == expected


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    train(options(write_data(tmp_path)), tmp_path / "run", display=SILENT)
    before = remains(tmp_path / "run")
    assert resume(tmp_path / "run", display=SILENT).finished == "all 12 steps are done"
    assert remains(tmp_path / "run") == before


def test_a_run_is_not_resumed_with_other_data(tmp_path):
    train(options(write_data(tmp_path)), tmp_path / "run", display=SILENT)
    write_data(tmp_path, count=59)
    with pytest.raises(DataError, match="other training data"):
        resume(tmp_path / "run", display=SILENT)


def begun(folder):
    run = folder / "run"
    with pytest.raises(KeyboardInterrupt):
        train(options(write_data(folder)), run, display=Interrupting(after=6))
    return run


def test_a_run_is_not_resumed_with_other_options_but_data_may_be_moved(tmp_path):
    run = begun(tmp_path)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["task"]["path"] = str((tmp_path / "data.jsonl").rename(tmp_path / "moved.jsonl"))
    changed = {**config, "training": {**config["training"], "learning_rate": 0.02}}
    (run / "config.yaml").write_text(yaml.safe_dump(changed))
    with pytest.raises(DataError, match=r"training.learning_rate was 0.01 and is now 0.02; restore it"):
        resume(run, display=SILENT)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert resume(run, display=SILENT).step == 12


def test_an_ensemble_is_trained_in_stages_and_resumed(tmp_path, monkeypatch):
    values = options(write_data(tmp_path))
    values["model"]["ensemble_size"] = 2
    used = defaultdict(list)
    use_objective = TreeReorderer.use_objective

    def noted(self, objective):
        used[id(self)].append(objective)
        use_objective(self, objective)

    monkeypatch.setattr(TreeReorderer, "use_objective", noted)
    train(values, tmp_path / "whole", display=SILENT)
    first, second = used.values()
    assert first == second
    assert set(first) == {"soft", "hard"}
    with pytest.raises(KeyboardInterrupt):
        train(values, tmp_path / "cut", display=Interrupting(after=6))
    resume(tmp_path / "cut", display=SILENT)
    assert remains(tmp_path / "cut") == remains(tmp_path / "whole")


def test_a_run_is_resumed_only_with_the_same_number_of_processes(tmp_path):
    run = begun(tmp_path)
    state = latest_state(run / "state") / "state.json"
    state.write_text(state.read_text().replace('"processes": 1', '"processes": 2'))
    (state.parent / "checksums.json").unlink()
    with pytest.raises(
        DataError, match=r"started with 2 processes, but now there are 1; use the same number"
    ):
        resume(run, display=SILENT)


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "optimiser.safetensors"])
def test_a_broken_state_is_told(tmp_path, name):
    run = begun(tmp_path)
    file = latest_state(run / "state") / name
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(DataError, match="this saved state is damaged"):
        resume(run, display=SILENT)
    file.unlink()
    with pytest.raises(DataError, match="this saved state is damaged"):
        resume(run, display=SILENT)


def test_the_best_of_several_seeds_is_trained(tmp_path):
    values = options(write_data(tmp_path), restarts=3, restart_steps=6, evaluate_every=3)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(values, run, display=Interrupting(after=7))  # in the second attempt
    assert {path.name for path in (run / "attempts").iterdir()} == {"seed-0", "seed-1"}
    assert resume(run, display=SILENT).step == 12
    scores = [
        read_progress(latest_state(run / "attempts" / f"seed-{seed}" / "state")).best for seed in range(3)
    ]
    best = scores.index(max(scores))
    assert json.loads((run / "environment.json").read_text())["chosen_seed"] == best
    alone = tmp_path / "alone"
    train({**options(tmp_path / "data.jsonl", evaluate_every=3), "seed": best}, alone, display=SILENT)
    assert (run / "model" / "model.safetensors").read_bytes() == (
        alone / "model" / "model.safetensors"
    ).read_bytes()


def test_the_seed_with_the_lowest_training_loss_is_trained_if_asked_for(tmp_path):
    values = options(
        write_data(tmp_path), restarts=4, restart_steps=6, restart_by="loss", evaluate_every=3, stages=[]
    )
    train(values, tmp_path / "run", display=SILENT)
    losses = []
    for seed in range(4):
        attempt = tmp_path / "run" / "attempts" / f"seed-{seed}"
        records = [json.loads(line) for line in (attempt / "metrics.jsonl").read_text().splitlines()]
        losses.append([record["loss"] for record in records if record["kind"] == "train"][-1])
    facts = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert facts["chosen_seed"] == losses.index(min(losses))
    assert facts["chosen_seed"] != losses.index(max(losses))


def test_short_runs_that_try_seeds_are_summed_up_in_one_line(tmp_path):
    class Listening(Display):
        said: ClassVar[list[str]] = []

        def say(self, message):
            self.said.append(message)

    values = options(write_data(tmp_path), restarts=2, restart_steps=6, stages=[])
    values["task"] = {**values["task"], "dev_size": 3}
    train(values, tmp_path / "run", display=Listening())
    said = Listening.said
    assert [line.startswith("after 6 steps, dev is ") for line in said].count(True) == 1
    assert said[0].startswith("note:")  # what was read, before anything is trained on it
    assert said[1:3] == ["trying seed 0", "trying seed 1"]
    assert said[3].startswith("after 6 steps, dev is ")
    assert "with seed 0, " in said[3]
    assert "training starts with seed " in said[3]
    assert sum(line.startswith("note:") for line in said) == 1  # once, and not for every seed


class Interrupting(Display):
    def __init__(self, after):
        self.left = after

    def advance(self, step, loss):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
