"""Torch tensors as NumPy arrays for the compiled loops, with checks of what the loops rely on."""

from typing import Any

from torch import Tensor

from permalign.kernels.layout import length_of, split_offsets


def as_array(tensor: Tensor) -> Any:
    """The tensor's memory as an array, or a contiguous copy of it."""
    return tensor.detach().contiguous().numpy()


def checked_lengths(lengths: Tensor, max_length: int) -> Any:
    """The lengths as an array. Compiled loops do not check bounds, so lengths out of range are refused here."""
    array = as_array(lengths)
    if array.min() < 1 or array.max() > max_length:
        raise ValueError(f"lengths must lie in 1..{max_length}, but go from {array.min()} to {array.max()}")
    return array


def require_shape(name: str, tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """Require the shape, and the dtype of another tensor, that the loops rely on."""
    if tuple(tensor.shape) != shape or tensor.dtype != like.dtype:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)} and dtype {tensor.dtype}, but must be {shape} of {like.dtype}"
        )


def layout_of(splits: Tensor, lengths: Tensor) -> tuple[Any, Any]:
    """The lengths, checked, and where each width of packed splits begins."""
    max_length = length_of(splits)
    if splits.dim() != 3 or splits.shape[2] != 2 or lengths.shape != splits.shape[:1]:
        raise ValueError(
            f"splits of shape {tuple(splits.shape)} and lengths of shape {tuple(lengths.shape)} must be (batch, T, 2) "
            "and (batch,)"
        )
    return checked_lengths(lengths, max_length), split_offsets(max_length)
