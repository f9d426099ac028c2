"""Log the metrics of training to metrics.jsonl, to trackers such as TensorBoard, and to a display."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from permalign.errors import DataError
from permalign.files import write_lines
from permalign.options.run import RunOptions
from permalign.training.progress_display import Display
from permalign.training.run_directory import RunDirectory
from permalign.training.state import Progress
from permalign.training.trackers import start_trackers
from permalign.training.write_errors import require_same_file


class Tracker:
    """Logs records, each of which has a step, a kind (``train`` or ``dev``) and named numbers.

    Args:
        run: the folder of the run; None in all processes except for the main one, which log nothing.
        progress: the progress of the run; records of later steps, written by a session that was killed, are removed.
        total: the total number of steps.
        display: displays the records.
        options: the options of the run, which name the trackers.
    """

    def __init__(
        self, run: RunDirectory | None, progress: Progress, total: int, display: Display, options: RunOptions
    ) -> None:
        self._display = display
        self._file: TextIO | None = None
        self._trackers: list[Any] = []
        self._digest = hashlib.sha256()
        if run is not None:
            kept_lines = [
                line.decode("utf-8")
                for number, line in enumerate(_complete_lines(run), 1)
                if _step(run, number, line) <= progress.step
            ]
            for line in kept_lines:
                self._digest.update(f"{line}\n".encode())
            if progress.records not in (None, self.fingerprint()) and run.metrics.exists():
                raise DataError(
                    f"is damaged: its records up to step {progress.step} are not those that were saved. Restore a "
                    "copy of it, or delete it to resume the run without them.",
                    run.metrics,
                )
            write_lines(run.metrics, kept_lines)
            self._trackers = start_trackers(
                options.training.trackers, run, progress.step, options.model_dump(mode="json")
            )
            self._file = run.metrics.open("a", encoding="utf-8")
            display.begin(progress.step, total)

    def fingerprint(self) -> str:
        """The SHA-256 digest of all records, which is saved with the state of the run."""
        return self._digest.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        # after an error of a file that cannot be written, closing it only fails once more
        with suppress(OSError) if error is not None else nullcontext(), ExitStack() as ends:
            ends.callback(self._display.end)
            for tracker in self._trackers:
                ends.callback(tracker.finish)
            ends.callback(self._file.close)

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:
        """Log a record.

        Raises:
            FileNotFoundError: the folder of the run was removed, or replaced by another one.
        """
        if self._file is None:
            return
        self._require_folder()
        line = json.dumps({"step": step, "kind": kind, **numbers}) + "\n"
        self._file.write(line)
        self._file.flush()
        self._digest.update(line.encode())
        named = {f"{kind}/{name}": number for name, number in numbers.items()}
        for tracker in self._trackers:
            tracker.log(named, step=step)
        self._display.record(step, kind, numbers)

    def advance(self, step: int, loss: float) -> None:
        """Display that a step is finished."""
        if self._file is not None:
            self._display.advance(step, loss)

    def sync(self) -> None:
        """Wait until all records are on disk, so that a saved state is never ahead of the records."""
        if self._file is not None:
            self._require_folder()
            os.fsync(self._file.fileno())

    def _require_folder(self) -> None:
        """Require that the run is still there; otherwise what is written next would be only a part of a run."""
        if self._file is not None:
            require_same_file(self._file.fileno(), Path(self._file.name))


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
