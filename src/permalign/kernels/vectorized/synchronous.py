"""Separable derivations that write an output; `permalign.kernels.portable.synchronous` has the recurrence.

All terms of a cell C(i,k,p,q), over split points j, rules o and output fenceposts r, are a row of one matrix times a
column of another, each divided by its largest entry:

    first(p; j,o,r) = exp( score(j,o) + C(first child,p,r) - row_top(p) )
    second(j,o,r; q) = exp( C(second child,r,q) - column_top(q) )
    C(i,k,p,q) = row_top(p) + column_top(q) + log( first @ second )

Where a row and a column prefer terms that differ too much, their product comes close to underflow. Sums again in
logarithms would need to know how many such cells there are, and so wait for the device; instead, their sentences are
reported. The backward pass computes both matrices of one width again, and keeps only the chart, in double precision.

The normal form is computed by `permalign.kernels.portable` only.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from permalign.kernels.layout import (
    length_of,
    mask_padding,
    max_phrase_length_of,
    pack_blocks,
    span_offset,
    width_block,
)
from permalign.kernels.numerics import LOG_ZERO
from permalign.kernels.portable.synchronous import band
from permalign.kernels.vectorized.charts import left_children, right_children

LEAST = 1e-184
"""Terms that underflow are lost; a sum larger than this does not miss them."""


def inside(
    scores: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.synchronous.inside`.

    Returns:
        The log of the summed weight of all derivations of the outputs, ``(batch,)``, and the sentences for which it is
        not exact, because the sum of some cell is close to underflow or zero.
    """
    log_sum, lost = _Inside.apply(scores, segments, lengths, target_lengths)  # type: ignore[no-untyped-call]
    return log_sum, lost


class _Products(NamedTuple):
    """The products of the children of all spans of one width.

    Attributes:
        first: ``(batch, start, p, j, o, r)``.
        second: ``(batch, start, j, o, r, q)``.
        tops: ``(batch, start, p, q)``, the logarithm of what the sums are divided by.
        sums: ``(batch, start, p, q)``.
    """

    first: Tensor
    second: Tensor
    tops: Tensor
    sums: Tensor

    @classmethod
    def of(cls, chart: Tensor, scores: Tensor, width: int) -> "_Products":
        left, right = left_children(chart, width), right_children(chart, width)  # (batch, start, j, p, q)
        options = width_block(scores, chart.shape[1] - 1, width)[:, :, None, ..., None]
        first = torch.stack([left.transpose(2, 3), right.transpose(2, 3)], dim=4) + options
        second = torch.stack([right, left], dim=3)
        row_tops, column_tops = first.amax((3, 4, 5)), second.amax((2, 3, 4))
        first = (first - row_tops[..., None, None, None]).exp()
        second = (second - column_tops[:, :, None, None, None]).exp()
        sums = first.flatten(3) @ second.flatten(2, 4)
        return cls(first, second, row_tops[..., None] + column_tops[:, :, None], sums)

    def adjoints(self, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The adjoints of the cells of left and of right children, and of the scores, ``(batch, start, j, o)``.

        Args:
            weights: those of the sums.
        """
        first, second = self.first.flatten(3), self.second.flatten(2, 4)
        of_first = (weights @ second.transpose(2, 3)).view_as(self.first) * self.first
        of_second = (first.transpose(2, 3) @ weights).view_as(self.second) * self.second
        left_first, right_first = of_first.transpose(2, 3).unbind(4)  # (batch, start, j, p, r)
        right_second, left_second = of_second.unbind(3)  # (batch, start, j, r, q)
        return left_first + left_second, right_first + right_second, of_first.sum((2, 5))


class _Inside(torch.autograd.Function):
    """The chart is ``[start, width, p, q]``. Gradient: see `permalign.kernels.compiled.synchronous.inside_backward`."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        length, (batch, leaves, fenceposts, _) = length_of(scores), segments.shape
        longest_leaf = max_phrase_length_of(length, leaves) or 0
        masked = mask_padding(scores, lengths).double()
        shape = (batch, length + 1, length + 1, fenceposts, fenceposts)
        chart = torch.full(shape, LOG_ZERO, dtype=torch.float64, device=scores.device)
        lost = torch.zeros(batch, dtype=torch.bool, device=scores.device)
        for width in range(1, length + 1):
            starts = length - width + 1
            cells = chart[:, :starts, width]
            if width > 1:
                products = _Products.of(chart, masked, width)
                possible = _possible(segments, lengths, target_lengths, width, starts)
                small = possible & (products.sums < LEAST)
                lost |= small.flatten(1).any(1)
                cells = torch.where(possible & ~small, products.tops + products.sums.log(), LOG_ZERO)
            if width <= longest_leaf:
                cells = torch.logaddexp(cells, _leaves(segments, lengths, target_lengths, length, width))
            chart[:, :starts, width] = cells.clamp(min=LOG_ZERO)
        ctx.save_for_backward(masked, segments, lengths, target_lengths, chart)
        ctx.mark_non_differentiable(lost)
        row = torch.arange(batch, device=scores.device)
        return chart[row, 0, lengths, 0, target_lengths].to(scores.dtype), lost

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        masked, segments, lengths, target_lengths, chart = ctx.saved_tensors
        length, longest_leaf = chart.shape[1] - 1, max_phrase_length_of(chart.shape[1] - 1, segments.shape[1])
        adjoint = torch.zeros_like(chart)
        row = torch.arange(len(grad), device=grad.device)
        adjoint[row, 0, lengths, 0, target_lengths] = grad.double()
        blocks, of_leaves = [], []
        for width in range(length, 0, -1):
            cells = chart[:, : length - width + 1, width]
            passed = adjoint[:, : length - width + 1, width]
            if width <= (longest_leaf or 0):
                leaves = _leaves(segments, lengths, target_lengths, length, width)
                of_leaves.append(torch.where(leaves > LOG_ZERO / 2, passed * (leaves - cells).exp(), 0.0))
            if width > 1:
                products = _Products.of(chart, masked, width)
                # where a cell is impossible, its chart holds LOG_ZERO whatever the products are
                weights = torch.where(cells > LOG_ZERO / 2, passed * (products.tops - cells).exp(), 0.0)
                of_left, of_right, of_scores = products.adjoints(weights)
                left_children(adjoint, width).add_(of_left)
                right_children(adjoint, width).add_(of_right)
                blocks.append(of_scores)
        of_scores = pack_blocks(blocks[::-1], torch.zeros_like(masked))
        of_segments = _by_size(torch.cat(of_leaves[::-1], dim=1), segments.shape[3])
        return of_scores.to(grad.dtype), of_segments.to(grad.dtype), None, None


def _possible(segments: Tensor, lengths: Tensor, target_lengths: Tensor, width: int, starts: int) -> Tensor:
    """Which cells of all spans of a width lie inside their sentence and its band, ``(batch, start, p, q)``."""
    in_source = torch.arange(starts, device=lengths.device) + width <= lengths[:, None]
    return in_source[:, :, None, None] & band(segments, lengths, target_lengths, width)[:, None]


def _leaves(segments: Tensor, lengths: Tensor, target_lengths: Tensor, length: int, width: int) -> Tensor:
    """The log-weights of all spans of a width as leaves, by start and end in the output, ``(batch, start, p, q)``."""
    of_width = segments[:, span_offset(length, width) : span_offset(length, width + 1)].double()
    fencepost = torch.arange(segments.shape[2], device=segments.device)
    size = fencepost - fencepost[:, None]
    by_end = of_width[:, :, fencepost[:, None], size.clamp(0, segments.shape[3] - 1)]
    possible = _possible(segments, lengths, target_lengths, width, of_width.shape[1])
    return torch.where(possible & (size < segments.shape[3]), by_end, LOG_ZERO)


def _by_size(cells: Tensor, sizes: int) -> Tensor:
    """Cells ``(batch, leaf, p, q)`` by the start and the size of what they write, ``(batch, leaf, start, size)``."""
    fencepost = torch.arange(cells.shape[2], device=cells.device)[:, None]
    end = fencepost + torch.arange(sizes, device=cells.device)
    by_size = cells[:, :, fencepost, end.clamp(max=cells.shape[2] - 1)]
    return torch.where(end < cells.shape[2], by_size, 0.0)
