"""Labelled trees that write outputs, in plain torch: charts over source spans and output spans, and walks.

With ``C(i,k,p,q,a)`` the log-weight of all labelled trees of (i,k) with label a that write the output tokens p..q-1,

    C(i,i+1,p,q,a) = token(i,a) + segment(i, p, q - p)
    C(i,k,p,q,a) = logsumexp over j, r, b, c of { rule(0,a,b,c) + split(i,j,k,0) + C(i,j,p,r,b) + C(j,k,r,q,c),
                                                  rule(1,a,b,c) + split(i,j,k,1) + C(i,j,r,q,b) + C(j,k,p,r,c) }

children are summed for every pair of their labels, which is then contracted with the rules, as in
`permalign.kernels.portable.labelled`: O(n^3 m^3 K^2 + n^2 m^2 K^3). Charts are in double precision.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from permalign.kernels.layout import attached_zeros, mask_padding, masked_tokens, width_block
from permalign.kernels.numerics import LOG_ZERO, needs_logs
from permalign.kernels.portable.labelled import parent
from permalign.kernels.portable.synchronous import (
    Walks,
    band,
    dense,
    dense_scores,
    leaves_of,
    walk_options,
)
from permalign.kernels.sampling import choose


def inside(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    maximise: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """Log-weights ``(batch, K)`` of the outputs by label of the root; and cells by width, ``(batch, i, p, q, K)``."""
    max_length, logs = tokens.shape[1], needs_logs(rules, root, torch.float64)
    scores, rules = mask_padding(splits, lengths).double(), rules.double()
    (leaves,) = leaves_of(segments.double(), max_length, lengths, target_lengths)
    cells = [leaves[..., None] + masked_tokens(tokens, lengths).double()[:, :, None, None]]
    for width in range(2, max_length + 1):
        left, right = _children(cells, width)  # (batch, i, p, q, rule, split and r, K)
        score = width_block(scores, max_length, width).transpose(2, 3)  # (batch, i, rule, split)
        score = score.repeat_interleave(segments.shape[2], 3)[:, :, None, None]
        cell = parent(left, right, score, rules, logs, maximise)
        possible = band(segments, lengths, target_lengths, width)[:, None, ..., None]
        cells.append(torch.where(possible, cell, LOG_ZERO))
    row = torch.arange(tokens.shape[0], device=tokens.device)
    tops = torch.stack([cell[:, 0] for cell in cells], 1)[row, lengths - 1, 0, target_lengths]
    # zero, but attached to splits and rules, neither of which a sentence of one token uses
    unused = attached_zeros(scores)[:, None] + rules.flatten()[:0].sum()
    return root.double() + tops + unused, cells


def _children(cells: list[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Left and right children of all spans of a width, for each rule, split point and output fencepost r."""
    starts, inner = cells[0].shape[1] - width + 1, range(1, width)
    left = torch.stack(
        [cells[left_width - 1][:, :starts] for left_width in inner], 2
    )  # (batch, i, split, from, to, K)
    right = torch.stack(
        [cells[width - left_width - 1][:, left_width : left_width + starts] for left_width in inner], 2
    )
    fenceposts = left.shape[3]
    # The child that comes first writes from p to r, the other one from r to q. Either child may come first, so both are
    # arranged in both ways as (batch, i, p, q, split, r, K): as the first one for any q, as the second one for any p.
    first, second = (
        [child.permute(axes).unsqueeze(new_axis).expand(shape) for child in (left, right)]
        for axes, new_axis, shape in (
            ((0, 1, 3, 2, 4, 5), 3, (-1, -1, -1, fenceposts, -1, -1, -1)),
            ((0, 1, 4, 2, 3, 5), 2, (-1, -1, fenceposts, -1, -1, -1, -1)),
        )
    )
    # under a straight rule the left child comes first, under an inverted one the right child
    lefts = torch.stack([first[0], second[0]], 4).flatten(5, 6)
    rights = torch.stack([second[1], first[1]], 4).flatten(5, 6)
    return lefts, rights


@dataclass(frozen=True)
class LabelledOptions:
    """Splits, rules, output fenceposts r and the labels of both children; a state is a label."""

    scores: Tensor  # (batch, i, k, inner, rule)
    chart: Tensor  # (batch, i, k, p, q, K)
    rules: Tensor  # (2, K, K, K)

    def values(self, row: Tensor, start: Tensor, end: Tensor, p: Tensor, q: Tensor, state: Tensor) -> Tensor:
        """Log-weights ``(walkers, options)`` of all (split point, rule, r, left label, right label)."""
        inner = torch.arange(self.scores.shape[3], device=row.device)
        middle = (start[:, None] + 1 + inner).clamp(max=self.chart.shape[1] - 1)
        row, start, end, p, q = (index[:, None] for index in (row, start, end, p, q))
        by_end = self.chart.transpose(3, 4)
        left = self.chart[row, start, middle, p], by_end[row, start, middle, q]  # (walkers, inner, r, K)
        right = by_end[row, middle, end, q], self.chart[row, middle, end, p]
        score = self.scores[row, start, end, inner]  # (walkers, inner, rule)
        values = torch.stack(
            [left[rule][..., :, None] + right[rule][..., None, :] for rule in (0, 1)], 2
        )  # (walkers, inner, rule, r, b, c)
        values = values + score[..., None, None, None] + self.rules.transpose(0, 1)[state][:, None, :, None]
        return values.flatten(1)

    def unravel(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Split point, rule, output fencepost r, and the children's labels."""
        labels, fenceposts = self.chart.shape[-1], self.chart.shape[3]
        rest, right = chosen // labels, chosen % labels
        rest, left = rest // labels, rest % labels
        return rest // (2 * fenceposts), rest // fenceposts % 2, rest % fenceposts, left, right


def walk(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None = None,
) -> Walks:
    """Labelled derivations of the outputs: the best ones, or drawn by ``uniforms`` ``(samples, batch, n)``.

    The first uniform number chooses the label of the root. Sentences too short to write their output are not walked.
    """
    rules, root, tokens, splits = (scores.detach() for scores in (rules, root, tokens, splits))
    pair = segments.detach(), lengths, target_lengths
    tops, cells = inside(rules, root, tokens, splits, *pair, maximise=uniforms is None)
    samples = 1 if uniforms is None else uniforms.shape[0]
    labels = choose(tops.repeat(samples, 1), None if uniforms is None else uniforms[..., 0].flatten())
    fits = target_lengths <= lengths * (segments.shape[3] - 1)
    roots = torch.where(fits, labels.view(samples, len(lengths)), -2)
    scores = dense_scores(mask_padding(splits, lengths).double())
    options = LabelledOptions(scores, dense(cells), rules.double())
    draws = None if uniforms is None else uniforms[..., 1:]
    return walk_options(options, roots, lengths, target_lengths, tokens.shape[1], draws)
