"""How the loops are compiled: once per machine, kept on disk, and announced on standard error."""

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
    """Compile a function when it is first called, and keep it on disk if some folder can be written to."""
    try:
        return njit(cache=True, **_OPTIONS, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written to
        return njit(**_OPTIONS, **options)(function)


def compiled(function: Callable[..., Any]) -> Any:
    """Decorate a loop that is compiled."""
    return _cached(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Decorate a helper that is inlined into the loops that call it."""
    return _cached(function, inline="always")


class _Announcer(event.Listener):
    """Announces once per process that kernels are being compiled; loading one from disk announces nothing."""

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
