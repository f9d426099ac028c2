"""Torch tensors as the arrays that compiled loops work on."""

from typing import Any

from torch import Tensor

from permalign.kernels.layout import split_offsets
from permalign.kernels.portable import words_of


def as_array(tensor: Tensor) -> Any:
    """The tensor's memory, or a contiguous copy."""
    return tensor.detach().contiguous().numpy()


def checked_lengths(lengths: Tensor, words: int) -> Any:
    """The lengths as an array; compiled loops do not check bounds, so this must not let a wrong one through."""
    array = as_array(lengths)
    if array.min() < 1 or array.max() > words:
        raise ValueError(f"lengths must lie in 1..{words}, but go from {array.min()} to {array.max()}")
    return array


def layout_of(splits: Tensor, lengths: Tensor) -> tuple[Any, Any]:
    """The lengths, and where each width begins."""
    words = words_of(splits)
    return checked_lengths(lengths, words), split_offsets(words)
