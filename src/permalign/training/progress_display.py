"""How a run looks while it goes on: a moving line on a terminal, plain lines elsewhere, nothing where nobody looks."""

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

LATELY = 0.9
"""How much of the smoothed loss is the past."""


class Display:
    """Shows nothing."""

    def begin(self, step: int, total: int) -> None:
        """A sitting begins at a step."""

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:
        """Numbers were written down."""

    def advance(self, step: int, loss: float) -> None:
        """A step is done."""

    def say(self, message: str) -> None:
        """A sentence for the person who watches."""

    def end(self) -> None:
        """The sitting is over."""


class PlainDisplay(Display):
    """A line for each record."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._begun, self._first, self._total = 0.0, 0, 0

    def begin(self, step: int, total: int) -> None:  # noqa: D102
        self._begun, self._first, self._total = time.monotonic(), step, total

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:  # noqa: D102
        left = (time.monotonic() - self._begun) / max(step - self._first, 1) * (self._total - step)
        self.say(f"step {step}/{self._total}  {kind}  {_shown(numbers)}  ({duration(left)} left)")

    def say(self, message: str) -> None:  # noqa: D102
        print(message, file=self._stream, flush=True)


class RichDisplay(Display):
    """A bar with step, loss, dev metric and the time left; dev records scroll by above it."""

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
            self.say(f"step {step}  dev  {_shown(numbers)}")

    def advance(self, step: int, loss: float) -> None:  # noqa: D102
        self._loss = loss if self._loss is None else LATELY * self._loss + (1 - LATELY) * loss
        self._bars.update(self._bar, completed=step, loss=f"{self._loss:.4f}")

    def say(self, message: str) -> None:  # noqa: D102
        self._bars.console.print(message, highlight=False, markup=False)

    def end(self) -> None:  # noqa: D102
        self._bars.stop()


def default_display() -> Display:
    """A moving line if standard error is a terminal, plain lines otherwise."""
    from rich.console import Console

    console = Console(stderr=True)
    return RichDisplay(console) if console.is_terminal else PlainDisplay()


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42), duration(125), duration(7512)
    ('42s', '2m 05s', '2h 05m')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, of_hour = divmod(minutes, 60)
    if hours:
        return f"{hours}h {of_hour:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def _shown(numbers: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {number:.4g}" for name, number in numbers.items())
