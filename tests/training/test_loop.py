"""What a short run logs, evaluates and saves in each of its steps."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from accelerate import Accelerator
from tests.training.small_run import options, write_data

from permalign.models.transducer import Transducer
from permalign.options.run import RunOptions, TrainingOptions
from permalign.training.launch import train
from permalign.training.progress_display import Display
from permalign.training.schedules import learning_rate
from permalign.training.session import Session

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
