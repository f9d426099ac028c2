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

from permalign.kernels.layout import attached_zeros, mask_padding, masked_tokens, span_offsets, width_block
from permalign.kernels.numerics import LOG_ZERO, needs_logs
from permalign.kernels.portable.labelled import parent
from permalign.kernels.portable.synchronous import (
    Walks,
    band,
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

    scores: Tensor  # (batch, i, k, inner, rule), LOG_ZERO where there is no such split
    chart: Tensor  # (batch, span, p, q, K)
    rules: Tensor  # (2, K, K, K)
    spans_at: Tensor  # where the spans of each width begin

    def values(self, row: Tensor, start: Tensor, end: Tensor, p: Tensor, q: Tensor, state: Tensor) -> Tensor:
        """Log-weights ``(walkers, options)`` of all (split point, rule, r, left label, right label)."""
        inner = torch.arange(self.scores.shape[3], device=row.device)
        row, start, end, p, q = (index[:, None] for index in (row, start, end, p, q))
        score = self.scores[row, start, end, inner]  # (walkers, inner, rule)
        middle = torch.minimum(start + 1 + inner, end - 1)  # beyond the last split the score rules it out
        of_left, of_right = self.spans_at[middle - start] + start, self.spans_at[end - middle] + middle
        by_end = self.chart.transpose(2, 3)
        left = self.chart[row, of_left, p], by_end[row, of_left, q]  # (walkers, inner, r, K)
        right = by_end[row, of_right, q], self.chart[row, of_right, p]
        values = torch.stack(
            [left[rule][..., :, None] + right[rule][..., None, :] for rule in (0, 1)], 2
        )  # (walkers, inner, rule, r, b, c)
        values = values + score[..., None, None, None] + self.rules.transpose(0, 1)[state][:, None, :, None]
        return values.flatten(1)

    def unravel(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Split point, rule, output fencepost r, and the children's labels."""
        labels, fenceposts = self.chart.shape[-1], self.chart.shape[2]
        rest, right = chosen // labels, chosen % labels
        rest, left = rest // labels, rest % labels
        return rest // (2 * fenceposts), rest // fenceposts % 2, rest % fenceposts, left, right


def walk(
    chart: Tensor,
    rules: Tensor,
    root: Tensor,
    splits: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    max_segment_length: int,
    uniforms: Tensor | None = None,
) -> Walks:
    """Labelled derivations of the outputs: the best ones, or drawn by ``uniforms`` ``(samples, batch, n)``.

    The first uniform number chooses the label of the root. Sentences too short to write their output are not walked.

    Args:
        chart: ``(batch, spans, p, q, K)`` in double precision, the cells of `inside` one width after the other:
            of the best trees, or with ``uniforms`` of all.
        rules: ``(2, K, K, K)``.
        root: ``(K,)``.
        splits: ``(batch, T, 2)``.
        lengths: ``(batch,)``, the lengths of the sources.
        target_lengths: ``(batch,)``, the lengths of the outputs.
        max_segment_length: the most tokens that a leaf writes.
        uniforms: the numbers to draw by; None for the best derivations.
    """
    samples = 1 if uniforms is None else uniforms.shape[0]
    scores = dense_scores(mask_padding(splits, lengths).double())
    max_length, row = scores.shape[1] - 1, torch.arange(len(lengths), device=chart.device)
    spans_at = torch.as_tensor(span_offsets(max_length), device=chart.device)
    tops = root.double() + chart[row, spans_at[lengths], 0, target_lengths]
    labels = choose(tops.repeat(samples, 1), None if uniforms is None else uniforms[..., 0].flatten())
    fits = target_lengths <= lengths * max_segment_length
    roots = torch.where(fits, labels.view(samples, len(lengths)), -2)
    options = LabelledOptions(scores, chart, rules.double(), spans_at)
    draws = None if uniforms is None else uniforms[..., 1:]
    return walk_options(options, roots, lengths, target_lengths, max_length, draws)
