"""Labelled trees whose rules are products, in plain torch: inside sums and the tagging likelihood.

A rule's log-weight is ``factors(o,0,a,b) + factors(o,1,a,c)``: given a node's label a and orientation o, the labels b
and c of its children do not depend on each other. So each cell is projected once for every orientation and side,

    projected(o,side,a) = logsumexp_b factors(o,side,a,b) + beta(b)

and a parent only adds the projections of its children, label by label: O(n^3 K + n^2 K^2) in place of O(n^3 K^2 + n^2
K^3). Projections are matrix products in probability space, with ``logs=True`` in logarithms throughout, as in
`permalign.kernels.portable.labelled`. What is not here is computed with the rules as one tensor (`expanded`).
"""

import torch
from torch import Tensor

from permalign.kernels.layout import (
    at_length,
    attached_zeros,
    inside_square,
    mask_padding,
    masked_tokens,
    width_block,
)
from permalign.kernels.portable.labelled import Option


def expanded(factors: Tensor) -> Tensor:
    """Rules ``(2, K, K, K)`` from their factors ``(2, 2, K, K)``, all as log-weights."""
    left, right = factors.unbind(1)
    return left[..., :, None] + right[..., None, :]


def project(cells: Tensor, factors: Tensor, logs: bool, maximise: bool = False) -> Tensor:
    """What cells ``(..., K)`` contribute to their parents: ``(..., 2, 2, K)``, by orientation and side."""
    if logs or maximise:
        weights = factors + cells[..., None, None, None, :]
        return weights.amax(-1) if maximise else weights.logsumexp(-1)
    top, highest = cells.detach().amax(-1), factors.detach().amax((0, 2, 3))[:, None]
    matrix = (factors - highest[..., None]).exp().flatten(0, 2)
    sums: Tensor = ((cells - top[..., None]).exp() @ matrix.T).log().unflatten(-1, factors.shape[:3])
    return sums + top[..., None, None, None] + highest


def parent(left: Tensor, right: Tensor, splits: Tensor, maximise: bool = False) -> Tensor:
    """Log-weights ``(..., K)`` of a span's labels from its children's projections.

    Args:
        left: ``(..., j, 2, K)``, those of the left children for every split point and orientation.
        right: ``(..., j, 2, K)``, those of the right children.
        splits: ``(..., j, 2)``.
        maximise: whether to take the best option rather than the sum.
    """
    options = (splits[..., None] + left + right).flatten(-3, -2)
    return options.amax(-2) if maximise else options.logsumexp(-2)


def inside(
    factors: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor, logs: bool, maximise: bool = False
) -> Tensor:
    """Log-weights ``(batch, spans, K)`` of all trees over every span by label; with ``maximise``, of the best one.

        beta(i,i+1,a) = token(i,a)
        beta(i,k,a) = logsumexp_{j,o} split(i,j,k,o) + projected(i,j,o,0,a) + projected(j,k,o,1,a)

    Spans are packed by width, then start; those that reach into padding hold no meaningful value.
    """
    batch, max_length, labels = tokens.shape
    splits = mask_padding(splits, lengths)
    cell = masked_tokens(tokens, lengths) + _attached_zeros(splits, factors)[:, None, None]
    # left[b, i, w] projects beta(i, i + w);   right[b, k, w] projects beta(k - w, k)
    left, right = (tokens.new_zeros(batch, max_length + 1, max_length + 1, 2, labels) for _ in range(2))
    cells = []
    for width in range(1, max_length + 1):
        starts = max_length - width + 1
        if width > 1:
            of_left, of_right = left[:, :starts, 1:width], right[:, width:, 1:width].flip(2)
            cell = parent(of_left, of_right, width_block(splits, max_length, width), maximise)
        left[:, :starts, width], right[:, width:, width] = project(cell, factors, logs, maximise).unbind(-2)
        cells.append(cell)
    return torch.cat(cells, dim=1)


def _attached_zeros(splits: Tensor, factors: Tensor) -> Tensor:
    """Zeros ``(batch,)`` attached to splits and factors, so that a sentence of one token has gradients (of zero)."""
    return attached_zeros(splits) + factors[:0].sum()


def best_option(
    factors: Tensor,
    label: Tensor,
    allowed: Tensor,
    of_left: Tensor,
    of_right: Tensor,
    of_split: Tensor,
    draw: None = None,
) -> Option:
    """The heaviest options of spans: the best label of each child, then the best split point; O(n K).

    The arguments are those of `permalign.kernels.portable.labelled.choose_option`; nothing is drawn.
    """
    # (walker, split, orientation), each side
    (left, left_label), (right, right_label) = (
        (child[:, :, None] + factors[:, side, label].transpose(0, 1)[:, None]).max(-1)
        for side, child in enumerate((of_left, of_right))
    )
    weights = (of_split + left + right).masked_fill(~allowed[..., None], -torch.inf)
    option = weights.flatten(1).argmax(1)
    left_label, right_label = (
        side.flatten(1).gather(1, option[:, None])[:, 0] for side in (left_label, right_label)
    )
    return option // 2, option % 2, left_label, right_label


def tagging_inside(
    factors: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    emissions: Tensor,
    lengths: Tensor,
    logs: bool,
) -> Tensor:
    """The log of the summed weight of all labelled trees times their emissions, ``(batch,)``; O(n^4 K + n^3 K^2).

        C(i,i+1,p,a) = emission(i,p) + token(i,a)
        C(i,k,p,a) = logsumexp_j { split(i,j,k,0) + projected(i,j,p,0,0,a) + projected(j,k,p+j-i,0,1,a),
                                   split(i,j,k,1) + projected(i,j,p+k-j,1,0,a) + projected(j,k,p,1,1,a) }

    and the result is ``logsumexp_a root(a) + C(0,n,0,a)``. ``emissions`` are ``(batch, token, position)``, finite.
    """
    batch, max_length, labels = tokens.shape
    splits = mask_padding(splits, lengths)
    emissions = torch.where(inside_square(lengths, max_length), emissions, emissions.new_zeros(()))
    token_scores = masked_tokens(tokens, lengths) + _attached_zeros(splits, factors)[:, None, None]
    cell = emissions[..., None] + token_scores[:, :, None]  # (batch, start, position, K)
    shape = (batch, max_length + 1, max_length + 1, max_length + 1, labels)
    left_start, left_end, right_start, right_end = (tokens.new_zeros(shape) for _ in range(4))
    roots = []
    for width in range(1, max_length + 1):
        starts = max_length - width + 1
        if width > 1:
            # (batch, start, split, position, K), straight and inverted
            of_left = (left_start[:, :starts, 1:width, :starts], left_end[:, :starts, 1:width, width:])
            of_right = (right_end[:, width:, 1:width, width:], right_start[:, width:, 1:width, :starts])
            left = torch.stack(of_left, dim=4).transpose(
                2, 3
            )  # (batch, start, position, split, orientation, K)
            right = torch.stack(of_right, dim=4).flip(2).transpose(2, 3)
            cell = parent(left, right, width_block(splits, max_length, width)[:, :, None])
        straight, inverted = project(cell, factors, logs).unbind(-3)  # (batch, start, position, side, K)
        left_start[:, :starts, width, :starts] = straight[..., 0, :]
        left_end[:, :starts, width, width:] = inverted[..., 0, :]
        right_end[:, width:, width, width:] = straight[..., 1, :]
        right_start[:, width:, width, :starts] = inverted[..., 1, :]
        roots.append((root + cell[:, 0, 0]).logsumexp(-1))
    return at_length(torch.stack(roots, dim=1), lengths)
