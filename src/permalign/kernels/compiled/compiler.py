"""How the kernels are compiled: once per machine, kept on disk, and announced."""

import sys
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    # sums may be reordered and fused so that loops vectorise; infinities and NaN keep their meaning
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
}


def _cached(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function when it is first called, and keep it on disk where there is a place to keep it."""
    try:
        return njit(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        return njit(**_OPTIONS, **options)(function)


def compiled(function: Callable[..., Any]) -> Any:
    """Decorate a loop."""
    return _cached(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Decorate a helper that becomes part of the loops that call it."""
    return _cached(function, inline="always")


class _Announcer(event.Listener):
    """Says once per process that kernels are being compiled; a kernel found on disk compiles nothing."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.said and function.__module__.startswith("permalign."):
            self.said = True
            print("permalign: compiling kernels (once, where they can be kept on disk) ...", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcer())
