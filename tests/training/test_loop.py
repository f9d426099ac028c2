"""What a short run logs, evaluates and saves in each of its steps."""

import json
import math
import os
import signal
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from tests.training.small_run import SILENT, options, write_data

from permalign.errors import PermalignError
from permalign.models.transducer import Transducer
from permalign.options.run import RunOptions, TrainingOptions
from permalign.training.interrupt_handler import SavedInterrupt
from permalign.training.launch import train
from permalign.training.progress_display import Display
from permalign.training.schedules import learning_rate
from permalign.training.session import Session, make_optimizer
from permalign.training.state import Progress, last_saved_step

SCHEDULE = {"schedule": "linear", "warmup_steps": 2, "learning_rate": 0.01}


class Losses(Display):
    """Remembers the loss of every step."""

    def __init__(self):
        self.losses = {}

    def advance(self, step, loss):
        self.losses[step] = loss


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """A run of 7 steps of 3 batches: its records, its losses, its progress, and its batches.

    Of each batch: its size, its loss, and whether gradients were held back.
    """
    folder, display, batches, held_back = tmp_path_factory.mktemp("short"), Losses(), [], []
    model_loss = Transducer.loss

    def loss(model, batch):
        answer = model_loss(model, batch)
        batches.append((len(batch), answer.total.item(), bool(held_back)))
        return answer

    @contextmanager
    def no_sync(accelerator, model):
        held_back.append(model)
        yield
        held_back.pop()

    values = options(
        write_data(folder),
        max_steps=7,
        evaluate_every=3,
        log_every=2,
        gradient_accumulation_steps=3,
        stages=[],
        **SCHEDULE,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Accelerator, "no_sync", no_sync)
        patch.setattr(Transducer, "loss", loss)
        progress = train(values, folder / "run", display=display)
    records = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return records, display.losses, progress, batches


def test_training_and_evaluation_are_recorded_at_their_steps_and_at_the_end(short_run):
    records, losses, progress, _ = short_run
    steps = {kind: [one["step"] for one in records if one["kind"] == kind] for kind in ("train", "dev")}
    assert steps == {"train": [2, 4, 6, 7], "dev": [3, 6, 7]}
    assert list(losses) == [1, 2, 3, 4, 5, 6, 7]
    assert progress.finished == "all 7 steps are done"
    assert {step for step, _ in progress.kept} <= {3, 6, 7}


def test_a_recorded_loss_is_the_mean_since_the_last_record(short_run):
    records, losses, _, _ = short_run
    recorded = {one["step"]: one["loss"] for one in records if one["kind"] == "train"}
    for first, last in [(1, 2), (3, 4), (5, 6), (7, 7)]:
        steps = range(first, last + 1)
        assert recorded[last] == pytest.approx(sum(losses[step] for step in steps) / len(steps))


def test_a_recorded_learning_rate_is_that_of_its_step(short_run):
    records, _, _, _ = short_run
    schedule = TrainingOptions(**SCHEDULE)
    for one in records:
        if one["kind"] == "train":
            assert one["learning_rate"] == pytest.approx(learning_rate(schedule, one["step"], total=7))


def test_the_time_of_a_run_only_grows(short_run):
    records, _, progress, _ = short_run
    seconds = [one["seconds"] for one in records if one["kind"] == "train"]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)
    assert seconds[-1] <= progress.seconds < 1e5
    assert 0 < progress.processor_seconds < 1e5


def test_gradients_are_exchanged_with_the_last_batch_of_an_update_only(short_run):
    assert [held_back for _, _, held_back in short_run[3]] == [True, True, False] * 7


def test_the_loss_of_a_step_is_the_mean_over_the_sentences_of_its_batches(short_run):
    _, losses, _, batches = short_run
    for step, loss in losses.items():
        of_step = batches[3 * (step - 1) : 3 * step]
        total = sum(size * batch_loss for size, batch_loss, _ in of_step)
        assert loss == pytest.approx(total / sum(size for size, _, _ in of_step), rel=1e-5)


def test_only_some_of_the_first_steps_update_the_reorderer_alone(tmp_path):
    values = options(write_data(tmp_path), reorderer_first={"steps": 400, "probability": 0.25})
    session = SimpleNamespace(options=RunOptions.parse(values))
    alone = [step for step in range(1, 1001) if Session.trains_only_reorderer(session, step)]
    assert 60 < len(alone) < 140
    assert max(alone) <= 400


def test_with_probability_one_all_of_the_first_steps_update_the_reorderer_alone(tmp_path):
    values = options(write_data(tmp_path), reorderer_first={"steps": 4, "probability": 1.0})
    session = SimpleNamespace(options=RunOptions.parse(values))
    assert [Session.trains_only_reorderer(session, step) for step in (1, 4, 5)] == [True, True, False]


def halvings(scores, **training):
    """How often the learning rate was halved after each evaluation."""
    session = SimpleNamespace(
        progress=Progress(),
        options=SimpleNamespace(training=TrainingOptions(**training)),
        setup=SimpleNamespace(metric="bleu"),
        total=1000,
    )
    halved = []
    for session.progress.step, score in enumerate(scores, start=1):
        Session._judge(session, score, cpu_seconds=0.0)
        halved.append(session.progress.halvings)
    return halved


def test_the_learning_rate_is_halved_on_a_plateau_and_on_no_other_schedule():
    scores = [1.0, 2.0, 2.0, 1.0, 1.5, 2.0, 3.0, 2.5]
    assert halvings(scores, schedule="plateau", plateau_patience=1) == [0, 0, 1, 2, 3, 4, 4, 5]
    assert halvings(scores, schedule="plateau", plateau_patience=2) == [0, 0, 0, 1, 1, 2, 2, 2]
    assert halvings(scores, schedule="linear", plateau_patience=1) == [0] * 8


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_the_optimizer_is_the_one_that_was_asked_for(tmp_path, name, kind):
    training = {"optimizer": name, "learning_rate": 0.25, "weight_decay": 0.125}
    run_options = RunOptions.parse(options(write_data(tmp_path), **training))
    made = make_optimizer(run_options, torch.nn.Linear(2, 2))
    assert type(made) is kind
    assert (made.param_groups[0]["lr"], made.param_groups[0]["weight_decay"]) == (0.25, 0.125)


@pytest.mark.parametrize(("limit", "expected"), [(0.5, 0.5), (None, math.inf)])
def test_gradients_are_clipped_to_the_norm_that_was_asked_for(tmp_path, monkeypatch, limit, expected):
    limits = []

    def clip(accelerator, parameters, max_norm):
        limits.append(max_norm)
        return torch.tensor(1.0)

    monkeypatch.setattr(Accelerator, "clip_grad_norm_", clip)
    values = options(write_data(tmp_path), max_steps=2, stages=[], clip_grad_norm=limit)
    train(values, tmp_path / "run", display=SILENT)
    assert limits == [expected] * 2


def test_a_gradient_that_is_not_finite_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(Accelerator, "clip_grad_norm_", lambda *arguments: torch.tensor(math.inf))
    with pytest.raises(PermalignError, match="the gradient of step 1 has norm inf"):
        train(options(write_data(tmp_path), stages=[]), tmp_path / "run", display=SILENT)


class Interrupted(Display):
    """Presses Ctrl-C in step 2."""

    def advance(self, step, loss):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_run_is_saved_after_the_step_at_hand(tmp_path):
    with pytest.raises(SavedInterrupt, match="saved at step 2"):
        train(options(write_data(tmp_path), stages=[]), tmp_path / "run", display=Interrupted())
    assert last_saved_step(tmp_path / "run") == 2
