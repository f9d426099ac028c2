"""Masks of padded batches."""

import torch
from torch import Tensor

from permalign.shapes import Bool, Int


def length_mask(lengths: Int[Tensor, " batch"], size: int) -> Bool[Tensor, "batch size"]:
    """Return a mask that is true within every sentence and false at its padding.

    >>> length_mask(torch.tensor([1, 3]), 3)
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def padding_mask(lengths: Int[Tensor, " batch"], size: int) -> Bool[Tensor, "batch size"]:
    """Return a mask that is true at padding, as PyTorch's ``key_padding_mask`` is.

    >>> padding_mask(torch.tensor([1, 3]), 3)
    tensor([[False,  True,  True],
            [False, False, False]])
    """
    return torch.arange(size, device=lengths.device) >= lengths[:, None]
