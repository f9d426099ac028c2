"""Torch tensors as the arrays that compiled loops work on."""

from typing import Any

from torch import Tensor

from permalign.kernels.layout import length_of, split_offsets


def as_array(tensor: Tensor) -> Any:
    """The tensor's memory, or a contiguous copy."""
    return tensor.detach().contiguous().numpy()


def checked_lengths(lengths: Tensor, words: int) -> Any:
    """The lengths as an array; compiled loops do not check bounds, so this must not let a wrong one through."""
    array = as_array(lengths)
    if array.min() < 1 or array.max() > words:
        raise ValueError(f"lengths must lie in 1..{words}, but go from {array.min()} to {array.max()}")
    return array


def require_shape(name: str, tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """A shape and dtype that loops rely on."""
    if tuple(tensor.shape) != shape or tensor.dtype != like.dtype:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}, but must be {shape} of {like.dtype}"
        )


def layout_of(splits: Tensor, lengths: Tensor) -> tuple[Any, Any]:
    """The lengths, and where each width begins."""
    words = length_of(splits)
    if splits.dim() != 3 or splits.shape[2] != 2 or lengths.shape != splits.shape[:1]:
        raise ValueError(
            f"splits of shape {tuple(splits.shape)} and lengths of shape {tuple(lengths.shape)} must be (batch, T, 2) "
            "and (batch,)"
        )
    return checked_lengths(lengths, words), split_offsets(words)
