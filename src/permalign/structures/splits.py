"""Splits of spans, packed by width, then start, then middle: their scores, and which of them an order allows."""

import torch
from torch import Tensor

from permalign.checks import shape_of
from permalign.kernels.layout import (
    length_of_split_count,
    split_count,
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
    batch, length = order.shape
    position = order.argsort(1)  # (batch, token)
    # the first and the last position of every span; ``low[:, i, w]`` is that of the span that begins at i, of w tokens
    low = position.new_zeros(batch, length, length + 1)
    low[:, :, 1] = position
    high = low.clone()
    for width in range(2, length + 1):
        spans, last = slice(length - width + 1), position[:, width - 1 :]
        low[:, spans, width] = torch.minimum(low[:, spans, width - 1], last)
        high[:, spans, width] = torch.maximum(high[:, spans, width - 1], last)
    contiguous = high - low + 1 == torch.arange(length + 1, device=order.device)
    # the same by end: in ``of_end[:, k, w]`` is the span of w tokens that ends at k
    starts = torch.arange(length + 1, device=order.device)[:, None] - torch.arange(
        length + 1, device=order.device
    )
    of_end = (slice(None), starts.clamp(0, length - 1), torch.arange(length + 1, device=order.device))
    low_of_end, contiguous_of_end = low[of_end], contiguous[of_end]
    blocks = [order.new_zeros((batch, 0, 2), dtype=torch.bool)]
    for width in range(2, length + 1):
        spans = slice(length - width + 1)
        left, right = (
            (slice(None), spans, slice(1, width)),
            (slice(None), slice(width, None), slice(1, width)),
        )
        # splits of a span go from the narrowest left part to the widest, and so from the widest right part
        possible = contiguous[left] & contiguous_of_end[right].flip(2) & contiguous[:, spans, width, None]
        straight = high[left] < low_of_end[right].flip(2)
        blocks.append(torch.stack([possible & straight, possible & ~straight], -1).flatten(1, 2))
    return torch.cat(blocks, 1)
