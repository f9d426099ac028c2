"""Ctrl-C at the end of a step instead of in its middle."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from accelerate import Accelerator

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTED = "\npermalign: saving after this step; press Ctrl-C again to stop at once\n"


class SavedInterrupt(KeyboardInterrupt):
    """Ctrl-C, after which a run was saved.

    Attributes:
        run: the folder; of a run with restarts, it may be that of an attempt.
        step: where it stands.
    """

    def __init__(self, run: Path, step: int) -> None:
        super().__init__(f"{run} is saved at step {step}")
        self.run, self.step = run, step


class InterruptHandler:
    """Takes note of Ctrl-C (and of a polite kill) while it is open; a second one ends the program at once."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._noted = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # no other may handle signals
            self._before = {one: signal.signal(one, self._note) for one in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def requested(self) -> bool:
        """Whether any process was interrupted; all of them ask at the same place, and get the same answer."""
        if self._noted:
            self._accelerator.set_trigger()
        return bool(self._accelerator.check_trigger())

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._noted:
            raise KeyboardInterrupt
        self._noted = True
        if self._accelerator.is_main_process and sys.stderr is not None:
            os.write(2, NOTED.encode())  # print may be interrupted by itself
