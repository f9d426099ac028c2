"""Display the progress of training: as a progress bar, as plain lines, or not at all."""

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from permalign.errors import escape_control_characters

SMOOTHING = 0.9
"""The weight of previous losses in the smoothed loss."""


class Display:
    """The base class of all displays; it displays nothing."""

    def begin(self, step: int, total: int) -> None:
        """Called when a session starts, with its first step and the total number of steps."""

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:
        """Called with every record of training (``train``) or evaluation (``dev``) metrics."""

    def advance(self, step: int, loss: float) -> None:
        """Called after each step."""

    def say(self, message: str) -> None:
        """Display a message."""

    def end(self) -> None:
        """Called when the session ends."""


class PlainDisplay(Display):
    """Prints one line per record."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._started, self._first, self._total = 0.0, 0, 0

    def begin(self, step: int, total: int) -> None:  # noqa: D102
        self._started, self._first, self._total = time.monotonic(), step, total

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:  # noqa: D102
        left = (time.monotonic() - self._started) / max(step - self._first, 1) * (self._total - step)
        self.say(f"step {step}/{self._total}  {kind}  {_format(numbers)}  ({duration(left)} left)")

    def say(self, message: str) -> None:  # noqa: D102
        print(message, file=self._stream, flush=True)


class RichDisplay(Display):
    """A progress bar with step, loss, dev metric and remaining time; dev records are printed above it."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._loss: float | None = None
        columns = (
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("dev {task.fields[dev]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self._bars = Progress(*columns, console=console)
        self._bar = self._bars.add_task("train", total=None, loss="-", dev="-", start=False)

    def begin(self, step: int, total: int) -> None:  # noqa: D102
        self._bars.update(self._bar, total=total, completed=step)
        self._bars.start_task(self._bar)
        self._bars.start()

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:  # noqa: D102
        if kind == "dev":
            self._bars.update(self._bar, dev=f"{next(iter(numbers.values())):.2f}")
            self.say(f"step {step}  dev  {_format(numbers)}")

    def advance(self, step: int, loss: float) -> None:  # noqa: D102
        self._loss = loss if self._loss is None else SMOOTHING * self._loss + (1 - SMOOTHING) * loss
        self._bars.update(self._bar, completed=step, loss=f"{self._loss:.4f}")

    def say(self, message: str) -> None:  # noqa: D102
        self._bars.console.print(escape_control_characters(message), highlight=False, markup=False)

    def end(self) -> None:  # noqa: D102
        self._bars.stop()


def default_display() -> Display:
    """A progress bar if standard error is a terminal, plain lines otherwise."""
    from rich.console import Console

    console = Console(stderr=True)
    return RichDisplay(console) if console.is_terminal else PlainDisplay()


def duration(seconds: float) -> str:
    """A duration in hours, minutes and seconds.

    >>> duration(42), duration(125), duration(7512)
    ('42s', '2m 05s', '2h 05m')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {seconds:02d}s" if minutes else f"{seconds}s"


def _format(numbers: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {number:.4g}" for name, number in numbers.items())
