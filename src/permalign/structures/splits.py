"""Splits of spans, packed by width, then start, then middle: their scores, and which of them an order allows."""

import torch
from torch import Tensor

from permalign.checks import shape_of
from permalign.kernels.layout import (
    length_of_split_count,
    span_offset,
    split_count,
    split_fenceposts,
    split_offset,
)
from permalign.shapes import Bool, Float, Int
from permalign.structures.derivations import RULES


def require_split_scores(name: str, scores: Tensor) -> int:
    """Require scores ``(batch, T, 2)`` of all splits of sentences of one length, and return that length."""
    length = length_of_split_count(scores.shape[1]) if scores.dim() == 3 and scores.shape[2] == 2 else None
    if length is not None:
        return length
    message = (
        f"{name} has shape {shape_of(scores)}, but must be (batch, T, 2) with T = (n^3 - n) / 6 for n words"
    )
    if scores.dim() == 3 and scores.shape[2] == 2:
        below = max(n for n in range(1, scores.shape[1] + 2) if split_count(n) <= scores.shape[1])
        message += f": {split_count(below)} for {below} words, {split_count(below + 1)} for {below + 1}"
    raise ValueError(message + ". Use SeparablePermutation.from_dense for scores indexed [i, j, k, rule].")


def span_options(
    weights: Float[Tensor, "splits 2"], length: int, start: int, end: int, forbidden: str | None = None
) -> Float[Tensor, "middles 2"]:
    """The probability of each middle and rule of one span, given that it is a constituent; they sum to one.

    Args:
        weights: the packed weights of one sentence's splits: conditional probabilities
            (`OrderDistribution.option_weights`), or posterior marginals.
        length: the number of tokens that ``weights`` has room for, n.
        start: the fencepost at which the span begins.
        end: the fencepost at which the span ends.
        forbidden: a rule that this span may not use (in normal form, its parent's if it is the left child).

    >>> weights = torch.tensor([[3.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 2.0]])  # the splits of three words
    >>> span_options(weights, 3, 0, 3)
    tensor([[0.2500, 0.0000],
            [0.2500, 0.5000]])
    """
    width = end - start
    first = split_offset(length, width) + start * (width - 1)
    options = weights[first : first + width - 1].double()
    if forbidden is not None:
        allowed = torch.tensor([float(rule != forbidden) for rule in RULES], device=options.device)
        options = options * allowed
    return (options / options.sum().clamp(min=torch.finfo(options.dtype).tiny)).to(weights.dtype)


def splits_of_order(order: Int[Tensor, "batch n"]) -> Bool[Tensor, "batch splits 2"]:
    """Which splits, with which rule, can be part of a derivation of the order.

    A span is possible if its tokens stand next to each other in the order; a split is possible if its span and both its
    parts are. It is straight if the left part stands before the right part in the order, otherwise inverted. O(n^3).

    >>> splits_of_order(torch.tensor([[1, 0]]))  # one split, inverted
    tensor([[[False,  True]]])
    """
    length = order.shape[1]
    position = order.argsort(1)  # (batch, token)
    low, high = [position], [position]  # the first and the last position of every span, width by width
    for width in range(2, length + 1):
        low.append(torch.minimum(low[-1][:, :-1], position[:, width - 1 :]))
        high.append(torch.maximum(high[-1][:, :-1], position[:, width - 1 :]))
    lowest, highest = torch.cat(low, 1), torch.cat(high, 1)
    whole, left, right = (spans.to(order.device) for spans in _spans_of_splits(length))
    widths = torch.repeat_interleave(
        torch.arange(length, device=order.device), torch.arange(length, 0, -1, device=order.device)
    )
    contiguous = highest - lowest == widths  # (batch, spans); widths count from 0
    possible = contiguous[:, whole] & contiguous[:, left] & contiguous[:, right]
    straight = highest[:, left] < lowest[:, right]
    return torch.stack([possible & straight, possible & ~straight], dim=-1)


def _spans_of_splits(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Packed indices of the spans (i,k), (i,j) and (j,k) of every split."""
    offsets = torch.tensor([0, *(span_offset(length, width) for width in range(1, length + 1))])
    start, middle, end = split_fenceposts(length).unbind(-1)
    return (
        offsets[end - start] + start,
        offsets[middle - start] + start,
        offsets[end - middle] + middle,
    )
