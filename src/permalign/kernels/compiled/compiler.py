"""How the loops are compiled: once per machine, kept on disk, and announced on standard error."""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

from permalign.kernels.compiled.disk_cache import KernelCache, announce

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    # sums may be reordered and fused so that loops vectorise; infinities and NaN keep their meaning
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "error_model": "numpy",
}


def _cached(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function when it is first called, unless it is on disk."""
    dispatcher = njit(**_OPTIONS, **options)(function)
    if hasattr(dispatcher, "_cache"):  # NUMBA_DISABLE_JIT leaves a plain function
        dispatcher._cache = KernelCache(function)
    return dispatcher


def compiled(function: Callable[..., Any]) -> Any:
    """Decorate a loop that is compiled."""
    return _cached(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Decorate a helper that is inlined into the loops that call it."""
    return _cached(function, inline="always")


class _Announcer(event.Listener):
    """Announces once per process that kernels are being compiled; loading one from disk announces nothing."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("permalign."):
            announce("compiling kernels (once, where they can be kept on disk) ...")

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announcer())
