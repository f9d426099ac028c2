"""Handle Ctrl-C at the end of a step, not in the middle of it."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from accelerate import Accelerator

SIGNALS = (signal.SIGINT, signal.SIGTERM)
MESSAGE = "\npermalign: saving after this step; press Ctrl-C again to stop at once\n"


class SavedInterrupt(KeyboardInterrupt):
    """Raised after Ctrl-C, once the run is saved.

    Attributes:
        run: the folder of the run, or of an attempt if the run has restarts.
        step: the step at which it was saved.
    """

    def __init__(self, run: Path, step: int) -> None:
        super().__init__(f"{run} is saved at step {step}")
        self.run, self.step = run, step


class InterruptHandler:
    """Catches SIGINT (Ctrl-C) and SIGTERM while it is open; a second signal interrupts at once."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._received = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # other threads may not handle signals
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def requested(self) -> bool:
        """Whether any process received a signal; all processes must call this together, and agree on the result."""
        if self._received:
            self._accelerator.set_trigger()
        return bool(self._accelerator.check_trigger())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._received:
            raise KeyboardInterrupt
        self._received = True
        if self._accelerator.is_main_process and sys.stderr is not None:
            os.write(2, MESSAGE.encode())  # unlike print, safe in a signal handler
