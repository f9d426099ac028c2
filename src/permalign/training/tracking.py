"""Log the metrics of training to metrics.jsonl, to TensorBoard and to a display."""

import json
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from permalign.errors import DataError
from permalign.files import write_lines
from permalign.training.progress_display import Display
from permalign.training.run_directory import RunDirectory


class Tracker:
    """Logs records, each of which has a step, a kind (``train`` or ``dev``) and named numbers.

    Args:
        run: the folder of the run; None in all processes except for the main one, which log nothing.
        step: the current step of the run; records of later steps, written by a session that was killed, are removed.
        total: the total number of steps.
        display: displays the records.
    """

    def __init__(self, run: RunDirectory | None, step: int, total: int, display: Display) -> None:
        self._display = display
        self._file = self._events = None
        if run is not None:
            from torch.utils.tensorboard import SummaryWriter

            kept_lines = [
                line.decode("utf-8")
                for number, line in enumerate(_complete_lines(run), 1)
                if _step(run, number, line) <= step
            ]
            write_lines(run.metrics, kept_lines)
            self._file = run.metrics.open("a", encoding="utf-8")
            self._events = SummaryWriter(str(run.events), purge_step=step + 1)
            display.begin(step, total)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None and self._events is not None:
            self._file.close()
            self._events.close()
            self._display.end()

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:
        """Log a record."""
        if self._file is None or self._events is None:
            return
        self._file.write(json.dumps({"step": step, "kind": kind, **numbers}) + "\n")
        self._file.flush()
        for name, number in numbers.items():
            self._events.add_scalar(f"{kind}/{name}", number, step)
        self._display.record(step, kind, numbers)

    def advance(self, step: int, loss: float) -> None:
        """Display that a step is finished."""
        if self._file is not None:
            self._display.advance(step, loss)

    def sync(self) -> None:
        """Wait until all records are on disk, so that a saved state is never ahead of the records."""
        if self._file is not None and self._events is not None:
            os.fsync(self._file.fileno())
            self._events.flush()


def _complete_lines(run: RunDirectory) -> list[bytes]:
    """The records of earlier sessions; the last one may be incomplete if the process was killed."""
    if not run.metrics.exists():
        return []
    *lines, _ = run.metrics.read_bytes().split(b"\n")
    return lines


def _step(run: RunDirectory, number: int, line: bytes) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise DataError(
            "is not a record of a step. Remove the line to resume the run.", run.metrics, number
        ) from None
