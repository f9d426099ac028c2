"""Handle Ctrl-C at the end of a training step, not in the middle of it."""

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
        run: the folder of the run that was saved; with restarts, the folder of the current attempt.
        step: the step at which the run was saved.
    """

    def __init__(self, run: Path, step: int) -> None:
        super().__init__(f"{run} is saved at step {step}")
        self.run, self.step = run, step


class InterruptHandler:
    """A context that catches SIGINT (Ctrl-C) and SIGTERM; a second signal interrupts immediately."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._received = False
        self._previous_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only it may handle signals
            self._previous_handlers = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def requested(self) -> bool:
        """Whether any process received a signal; all processes must call this method, and get the same result."""
        if self._received:
            self._accelerator.set_trigger()
        return bool(self._accelerator.check_trigger())

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._received:
            raise KeyboardInterrupt
        self._received = True
        if self._accelerator.is_main_process and sys.stderr is not None:
            os.write(2, MESSAGE.encode())  # unlike print, safe in a signal handler
