"""Mixed precision: encoders, projections and softmaxes in bfloat16 or float16, and everything else in float32.

Under `torch.autocast`, torch computes every matrix product in low precision. Dynamic programs must not be computed like
that: their sums have many terms of very different sizes, and all that is learned about orders and alignments goes
through them. So a model switches autocast off when it is called, remembers the dtype that was asked for, and uses it
only in certain layers:

>>> def layer(x):
...     return x @ x
>>> class Module:
...     device = torch.device("cpu")
...
...     @limit_autocast
...     def forward(self, x):
...         return (x @ x).dtype, low_precision_dtype(), in_low_precision(layer, x).dtype
>>> with torch.autocast("cpu", torch.bfloat16):
...     Module().forward(torch.ones(2, 2))
(torch.float32, torch.bfloat16, torch.float32)
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

_dtype: ContextVar[torch.dtype | None] = ContextVar("low_precision_dtype", default=None)


def limit_autocast(method: Function) -> Function:
    """Decorate a method of a module, so that `torch.autocast` reaches only what `in_low_precision` calls in it."""

    @wraps(method)
    def limited(self: Any, *arguments: Any, **options: Any) -> Any:
        device = self.device.type
        if not _is_autocast(device):
            return method(self, *arguments, **options)
        token = _dtype.set(torch.get_autocast_dtype(device))
        try:
            with torch.autocast(device, enabled=False):
                return method(self, *arguments, **options)
        finally:
            _dtype.reset(token)

    return cast(Function, limited)


def outside_autocast(function: Function) -> Function:
    """Decorate a function whose first argument is a tensor, so that it is always computed in the tensors' precision."""

    @wraps(function)
    def exact(first: Tensor, *arguments: Any, **options: Any) -> Any:
        device = first.device.type
        if not _is_autocast(device):
            return function(first, *arguments, **options)
        with torch.autocast(device, enabled=False):
            return function(first, *arguments, **options)

    return cast(Function, exact)


def low_precision_dtype() -> torch.dtype | None:
    """The dtype of layers that may be computed in low precision; None if none was asked for.

    A program that ``torch.compile`` or ``torch.export`` traces is in float32.
    """
    return None if torch.compiler.is_compiling() else _dtype.get()


def _is_autocast(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def in_low_precision(compute: Callable[..., Any], first: Tensor, *arguments: Any, on_cpu: bool = True) -> Any:
    """Call a layer in low precision, if that was asked for, and return its result in float32.

    Args:
        compute: the layer; it returns a tensor, or a tuple of tensors and tuples.
        first: its first argument.
        arguments: its other arguments.
        on_cpu: whether the layer can be computed in low precision on every CPU; else it is not on any.
    """
    dtype = low_precision_dtype()
    if dtype is None or (first.device.type == "cpu" and not on_cpu):
        return compute(first, *arguments)
    with torch.autocast(first.device.type, dtype):
        return _in_float32(compute(first, *arguments))


def _in_float32(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_in_float32(part) for part in result)
    return result.float() if result.dtype in (torch.bfloat16, torch.float16) else result
