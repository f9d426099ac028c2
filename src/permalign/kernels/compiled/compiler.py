"""How the kernels are compiled: once per machine, kept on disk, and announced."""

import sys
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

# Sums may be reordered and fused so that loops vectorise; infinities and NaN keep their meaning.
_OPTIONS = {
    "nogil": True,
    "cache": True,
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
}

compiled: Callable[..., Any] = njit(**_OPTIONS)
inlined: Callable[..., Any] = njit(inline="always", **_OPTIONS)


class _Announcer(event.Listener):  # type: ignore[misc]
    """Says once per process that kernels are being compiled; a kernel found on disk compiles nothing."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.said and function.__module__.startswith("permalign."):
            self.said = True
            print("permalign: compiling kernels for this machine (once, kept on disk) ...", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcer())
