"""Checks of arguments, whose errors give the argument, its shape, what was expected and what to do."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def shape_of(tensor: Tensor) -> str:
    """The shape of a tensor as a plain tuple, for messages.

    >>> shape_of(torch.zeros(4, 120, 2))
    '(4, 120, 2)'
    """
    return str(tuple(tensor.shape))


def should_validate(validate_args: bool | None) -> bool:
    """Whether the values of arguments are checked; None means the default of `torch.distributions`."""
    return bool(torch.distributions.Distribution._validate_args if validate_args is None else validate_args)


def require_at_least_one(**counts: int) -> None:
    """Require that each of these arguments is 1 or more."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} is {count}, but must be at least 1.")


def require_dropout(dropout: float) -> None:
    """Require a dropout rate below 1."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}, but must lie in 0 <= dropout < 1.")


def require_floats(tensors: Mapping[str, Tensor]) -> None:
    """Require float32 or float64 tensors that share one dtype and one device."""
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a tensor, not {type(tensor).__name__}.")
        if tensor.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{name} {shape_of(tensor)} has dtype {tensor.dtype}, but exact inference needs torch.float32 or "
                f"torch.float64. Convert it with {name}.float() or {name}.double()."
            )
        if tensor.dtype != first.dtype:
            raise ValueError(
                f"{name} {shape_of(tensor)} has dtype {tensor.dtype}, but {first_name} has {first.dtype}. "
                f"Convert it with {name}.to({first_name})."
            )
        if tensor.device != first.device:
            raise ValueError(
                f"{name} {shape_of(tensor)} is on {tensor.device}, but {first_name} is on {first.device}. "
                f"Move it with {name}.to({first_name})."
            )


def require_lengths(name: str, lengths: Tensor | None, of: str, tensor: Tensor, maximum: int) -> Tensor:
    """Require integer lengths ``(batch,)`` on the tensor's device, and return them as int64.

    Args:
        name: the name of the argument that holds the lengths.
        lengths: the lengths; None means that all of them are ``maximum``.
        of: the name of the argument whose rows the lengths belong to.
        tensor: that argument itself, ``(batch, ...)``.
        maximum: the length there is room for. Values are not read here; see `require_range`.
    """
    batch = tensor.shape[0]
    if batch == 0:
        raise ValueError(f"{of} {shape_of(tensor)} is an empty batch. Pass at least one sentence.")
    if lengths is None:
        return torch.full((batch,), maximum, device=tensor.device)
    if not isinstance(lengths, Tensor):
        raise ValueError(f"{name} must be a tensor of {batch} whole numbers, not {type(lengths).__name__}.")
    if lengths.shape != (batch,):
        raise ValueError(
            f"{name} has shape {shape_of(lengths)}, but {of} {shape_of(tensor)} holds {batch} sentences. "
            f"Pass one length for each, shape ({batch},)."
        )
    if lengths.dtype.is_floating_point or lengths.dtype.is_complex or lengths.dtype == torch.bool:
        raise ValueError(
            f"{name} {shape_of(lengths)} has dtype {lengths.dtype}, but lengths are whole numbers. "
            f"Convert it with {name}.long()."
        )
    if lengths.device != tensor.device:
        raise ValueError(
            f"{name} {shape_of(lengths)} is on {lengths.device}, but {of} is on {tensor.device}. "
            f"Move it with {name}.to({of}.device)."
        )
    return lengths.long()


def require_order_of_cells(order: Tensor, batch: int, cells: int) -> None:
    """Require an order ``(batch, cells)``: the token that stands at every cell."""
    if not isinstance(order, Tensor):
        raise ValueError(f"order must be a tensor of whole numbers, not {type(order).__name__}.")
    if tuple(order.shape) != (batch, cells) or order.is_floating_point():
        raise ValueError(
            f"order has shape {shape_of(order)} and dtype {order.dtype}, but must be {(batch, cells)} whole numbers: "
            "the token that stands at each cell (an end cell has none)."
        )


def require_range(
    name: str, lengths: Tensor, of: str, tensor: Tensor, maximum: int, minimum: int = 1, what: str = "words"
) -> None:
    """Require lengths between ``minimum`` and ``maximum``.

    This reads the values, so it waits for the device; it is skipped while `torch.compile` traces.
    """
    if torch.compiler.is_compiling():
        return
    low, high = int(lengths.min()), int(lengths.max())
    if low < minimum:
        raise ValueError(
            f"{name} goes down to {low}, but must lie in {minimum}..{maximum} {what} ({of} has shape "
            f"{shape_of(tensor)}). Leave out sentences that are shorter."
        )
    if high > maximum:
        raise ValueError(
            f"{name} goes up to {high}, but {of} has room for {maximum} {what} (shape {shape_of(tensor)}). "
            f"Pad {of}, or pass {name}.clamp(max={maximum})."
        )


def sample_count(sample_shape: Sequence[int]) -> int:
    """The number of samples that a ``sample_shape`` asks for.

    >>> sample_count((2, 3)), sample_count(())
    (6, 1)
    """
    if not isinstance(sample_shape, Sequence) or any(not isinstance(n, int) or n < 0 for n in sample_shape):
        raise ValueError(
            f"sample_shape is {sample_shape!r}, but must be a tuple of whole numbers; write (3,), not 3."
        )
    return torch.Size(sample_shape).numel()


def require_finite(name: str, tensor: Tensor, valid: Tensor) -> None:
    """Require finite values wherever ``valid`` is true; ``valid`` broadcasts over the trailing axes of the tensor."""
    bad = ~torch.isfinite(tensor) & _over_trailing_axes(valid, tensor)
    if bool(bad.any()):
        raise ValueError(
            f"{name} {shape_of(tensor)} must be finite, but {_first_of(bad, name, tensor)}. Use a large negative "
            "number to forbid an option; a NaN usually comes from an earlier division or logarithm."
        )


LARGEST_SCORE = 1e12
"""Scores above this leave no digits for the differences between derivations."""


def require_scores(
    name: str,
    tensor: Tensor,
    valid: Tensor,
    advice: str = "To choose an option, forbid the others by a large negative number.",
) -> None:
    """Require finite scores of at most `LARGEST_SCORE` wherever ``valid`` is true; any negative one is allowed."""
    require_finite(name, tensor, valid)
    bad = (tensor > LARGEST_SCORE) & _over_trailing_axes(valid, tensor)
    if bool(bad.any()):
        raise ValueError(
            f"{name} {shape_of(tensor)} must be at most {LARGEST_SCORE:g}, but {_first_of(bad, name, tensor)}, beside "
            f"which all other scores are lost. {advice}"
        )


def require_log_probs(name: str, tensor: Tensor, valid: Tensor) -> None:
    """Require log-probabilities wherever ``valid`` is true: -inf is allowed, NaN and what is too large are not.

    They may be positive, as those of densities and unnormalised weights are, but at most `LARGEST_SCORE`.
    """
    bad = (torch.isnan(tensor) | (tensor > LARGEST_SCORE)) & valid
    if bool(bad.any()):
        raise ValueError(
            f"{name} {shape_of(tensor)} must be log-probabilities, without NaN, +inf or numbers above "
            f"{LARGEST_SCORE:g} (-inf is allowed), but {_first_of(bad, name, tensor)}. Look for an earlier division "
            "or logarithm."
        )


def _over_trailing_axes(valid: Tensor, tensor: Tensor) -> Tensor:
    """Return a mask that broadcasts over the axes of a tensor that it does not have."""
    return valid.reshape(*valid.shape, *(1,) * (tensor.dim() - valid.dim()))


def _first_of(bad: Tensor, name: str, tensor: Tensor) -> str:
    """Describe the first of the entries of a tensor where ``bad`` is true, and how many there are."""
    index = tuple(int(coordinate) for coordinate in bad.nonzero()[0])
    place = ", ".join(map(str, index))
    return f"{name}[{place}] is {tensor[index].item()} ({int(bad.sum())} such entries)"
