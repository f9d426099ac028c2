"""Restricting a grammar to what one given order allows, with log-zeros that stay finite."""

import torch
from torch import Tensor

from permalign.kernels.layout import span_offset, split_fenceposts
from permalign.shapes import Bool, Float, Int

LOG_ZERO = -1e30
"""Stands for log 0 inside charts: sums of it stay finite in float32, so no gradient becomes NaN."""


def minus_infinity_below(
    value: Float[Tensor, " batch"], total: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """The value, but -inf (with no gradient) where a chart's total shows that nothing was possible."""
    return torch.where(total < LOG_ZERO / 2, -torch.inf, value)


def zero_if_impossible(total: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """A total to divide weights by: where nothing was possible, all of them vanish anyway."""
    return total.masked_fill(total == -torch.inf, 0.0)


def splits_of_order(order: Int[Tensor, "batch n"]) -> Bool[Tensor, "batch splits 2"]:
    """Which splits, with which rule, can be part of a derivation of the order.

    A span is possible if its tokens stand next to each other in the order; a split if its whole and both its parts
    are; straight if the left part stands before the right one, inverted if behind. O(n^3).

    >>> splits_of_order(torch.tensor([[1, 0]]))  # one split, inverted
    tensor([[[False,  True]]])
    """
    words = order.shape[1]
    position = order.argsort(1)  # of every token
    low, high = [position], [position]  # of every span, width by width
    for width in range(2, words + 1):
        low.append(torch.minimum(low[-1][:, :-1], position[:, width - 1 :]))
        high.append(torch.maximum(high[-1][:, :-1], position[:, width - 1 :]))
    lowest, highest = torch.cat(low, 1), torch.cat(high, 1)
    whole, left, right = (spans.to(order.device) for spans in _spans_of_splits(words))
    widths = torch.repeat_interleave(
        torch.arange(words, device=order.device), torch.arange(words, 0, -1, device=order.device)
    )
    together = highest - lowest == widths  # (batch, spans); widths count from 0
    possible = together[:, whole] & together[:, left] & together[:, right]
    straight = highest[:, left] < lowest[:, right]
    return torch.stack([possible & straight, possible & ~straight], dim=-1)


def _spans_of_splits(words: int) -> tuple[Tensor, Tensor, Tensor]:
    """Packed indices of the spans (i,k), (i,j) and (j,k) of every split."""
    offsets = torch.tensor([0, *(span_offset(words, width) for width in range(1, words + 1))])
    start, middle, end = split_fenceposts(words).unbind(-1)
    return (
        offsets[end - start] + start,
        offsets[middle - start] + start,
        offsets[end - middle] + middle,
    )
