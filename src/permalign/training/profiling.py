"""Measure where the time of a training step goes: reading, encoders, reorderer, head, backward, optimizer, dev."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from permalign.encoders import Encoder
from permalign.evaluation import evaluate
from permalign.heads import Head
from permalign.models.base import Model
from permalign.openmp import num_cores
from permalign.options.run import RunOptions
from permalign.reorderers import Reorderer
from permalign.training.loop import endless
from permalign.training.run_directory import RunDirectory
from permalign.training.session import make_optimizer
from permalign.training.setup import TrainingSetup, prepare
from permalign.training.trained_run import load_on_device

SECTIONS = (
    "reading",
    "encoder",
    "reorderer",
    "head",
    "other layers",
    "backward",
    "optimizer",
    "dev evaluation",
)
WARM_UP = 2
"""The number of first steps that are not measured, because kernels may have to be compiled."""
MAX_DEV_EXAMPLES = 64


@dataclass(frozen=True)
class Profile:
    """The time of a training step.

    Attributes:
        seconds: seconds per step by section; those of the dev evaluation are divided among the steps between two
            evaluations.
        tokens_per_second: source and target tokens trained on per second, without evaluations.
        advice: what would make steps faster, one sentence each, what matters most first.
    """

    seconds: dict[str, float]
    tokens_per_second: float
    advice: tuple[str, ...]

    @property
    def total(self) -> float:
        """Seconds per step."""
        return sum(self.seconds.values())


@dataclass
class Stopwatch:
    """Adds up the time of sections; the time of an inner section is not counted in the outer one."""

    seconds: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = 0.0

    def start(self, name: str) -> None:
        """Begin a section, inside the present one."""
        self._lap()
        self._open.append(name)

    def stop(self) -> None:
        """End the present section."""
        self._lap()
        self._open.pop()

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Measure a block."""
        self.start(name)
        try:
            yield
        finally:
            self.stop()

    def _lap(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] = self.seconds.get(self._open[-1], 0.0) + now - self._since
        self._since = now


def profile(run: str | Path, steps: int = 10, device: str | None = None) -> Profile:
    """Train for some steps with the options and the model of a run, and measure them; the run is not changed.

    Args:
        run: the folder of a run.
        steps: the number of steps to measure.
        device: the device; None for the first GPU, or the CPU if there is none.
    """
    directory = RunDirectory(run)
    options = directory.read_options()
    setup = prepare(options)
    model = load_on_device(directory.path, device)
    watch, tokens = Stopwatch(), 0
    optimizer, stream = make_optimizer(options, model), endless(setup.batches)
    with measured_parts(model.train(), watch):
        for step in range(steps + WARM_UP):
            if step == WARM_UP:
                watch.seconds.clear()
                tokens = 0
            tokens += _step(options, model, optimizer, stream, watch)
    seconds = {name: watch.seconds.get(name, 0.0) / steps for name in SECTIONS}
    rate = tokens / steps / max(sum(seconds.values()), 1e-9)
    seconds["dev evaluation"] = _dev_seconds(options, setup, model) / options.training.evaluate_every
    return Profile(seconds, rate, tuple(_advise(options, setup, seconds)))


def _step(
    options: RunOptions,
    model: Model,
    optimizer: torch.optim.Optimizer,
    stream: Iterator[Any],
    watch: Stopwatch,
) -> int:
    """Train for one step; returns the number of tokens."""
    training, tokens = options.training, 0
    for _ in range(training.gradient_accumulation_steps):
        with watch.section("reading"):
            batch = next(stream).to(model.device)
        with watch.section("other layers"):
            loss = model.loss(batch).total / training.gradient_accumulation_steps
        with watch.section("backward"):
            loss.backward()
        tokens += int(batch.source_lengths.sum() + batch.target_lengths.sum())
    with watch.section("optimizer"):
        for group in model.independent_parameters():
            torch.nn.utils.clip_grad_norm_(group, training.clip_grad_norm or float("inf"))
        optimizer.step()
        optimizer.zero_grad()
    return tokens


@contextmanager
def measured_parts(model: Model, watch: Stopwatch) -> Iterator[None]:
    """Measure the forward passes of a model's parts while the block runs."""
    undo: list[Callable[[], None]] = []
    for module in model.modules():
        if isinstance(module, Encoder | Reorderer):
            name = "encoder" if isinstance(module, Encoder) else "reorderer"
            before = module.register_forward_pre_hook(lambda *_, name=name: watch.start(name))
            after = module.register_forward_hook(lambda *_: watch.stop())
            undo += [before.remove, after.remove]
        elif isinstance(module, Head):
            for method in ("log_likelihood", "training_likelihood_over_orders"):
                module.__dict__[method] = _measured(getattr(module, method), watch)
                undo.append(lambda module=module, method=method: module.__dict__.pop(method))  # type: ignore[misc]
    try:
        yield
    finally:
        for action in undo:
            action()


def _measured(method: Callable[..., Any], watch: Stopwatch) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        with watch.section("head"):
            return method(*arguments, **options)

    return call


def _dev_seconds(options: RunOptions, setup: TrainingSetup, model: Model) -> float:
    """The time of a whole evaluation on dev, judged by some of its examples."""
    training = options.training
    some = list(setup.dev)[:: max(1, len(setup.dev) // MAX_DEV_EXAMPLES)][:MAX_DEV_EXAMPLES]
    start = time.perf_counter()
    evaluate(model, setup.task, some, beam=training.beam, length_penalty=training.length_penalty)
    return (time.perf_counter() - start) * len(setup.dev) / len(some)


def _advise(options: RunOptions, setup: TrainingSetup, seconds: dict[str, float]) -> Iterator[str]:
    """What would help, by the sections that take most of the time."""
    total, training, model = sum(seconds.values()), options.training, options.model
    share = {name: value / total for name, value in seconds.items()}
    if share["dev evaluation"] > 0.25:
        yield (
            f"Evaluations on dev take {share['dev evaluation']:.0%} of the time. Raise training.evaluate_every "
            f"(now {training.evaluate_every}), or set training.max_dev_examples (dev has {len(setup.dev)})."
        )
    if share["reading"] > 0.2:
        yield f"Reading takes {share['reading']:.0%}. Use larger batches (training.batch_size {training.batch_size})."
    if share["head"] > 0.3 and len(setup.model.target) > 2000 and model.head.num_negatives is None:
        yield (
            f"The head computes a softmax over {len(setup.model.target)} words. Set model.head.num_negatives, or use "
            "subwords (text.target.kind)."
        )
    if share["reorderer"] > 0.3 and model.reorderer.kind in ("separable", "labelled"):
        longest = max(len(example.source) for example in setup.dev)
        yield (
            f"The reorderer takes {share['reorderer']:.0%} of the time forward (about as much again backward), and "
            f"grows with the cube of the length (dev has up to {longest} words). Try a smaller "
            "model.reorderer.scorer_hidden_size, or objective hard instead of soft or exact."
        )
    if share["encoder"] > 0.4:
        yield f"Encoders take {share['encoder']:.0%} of the time forward. Try a smaller hidden_size or fewer layers."
    if training.batch_size < 16 and share["optimizer"] > 0.15:
        yield f"The optimizer takes {share['optimizer']:.0%}. A training.batch_size above {training.batch_size} helps."
    if torch.get_num_threads() < num_cores() and not torch.cuda.is_available():
        yield (
            f"torch uses {torch.get_num_threads()} of {num_cores()} cores. If nothing else runs here, set "
            f"OMP_NUM_THREADS={num_cores()}."
        )
