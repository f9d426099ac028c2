"""Labelled trees; `permalign.kernels.portable.labelled` has the recurrences, which are not repeated here.

Charts are in probability space, as those of `permalign.kernels.compiled.labelled`. A cell holds the weights of its
labels divided by the largest of them, its ``values``, and the logarithm of that largest weight, its ``scale``. With o
for the orientation and x and y for the labels of the left and the right child,

    left(o,j,x) = weight(o,j) value(left child, x)      right(o,j,y) = value(right child, y)
    pairs(o,x,y) = sum_j left(o,j,x) right(o,j,y)
    value(a) = sum_{o,x,y} rule(a,o,x,y) pairs(o,x,y) / largest

where ``weight`` is that of a split point and of both children's scales, divided by the largest such weight, and
``largest`` is the largest of the sums. The adjoint
of a cell is that of its values. How a weight is divided between value and scale does not matter, so scales are
constants. The backward pass computes ``left``, ``right`` and ``pairs`` of one width again, and keeps only the chart.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from permalign.kernels.layout import inside_square, mask_padding, masked_tokens, pack_blocks, width_block
from permalign.kernels.numerics import RULE_RANGE
from permalign.kernels.vectorized.charts import PositionedChildren, left_children, right_children


def inside(rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> Tensor:
    """The log of the summed weight of all labelled trees; see `permalign.kernels.portable.labelled.inside`."""
    log_sum: Tensor = _Inside.apply(rules, root, tokens, splits, lengths)  # type: ignore[no-untyped-call]
    return log_sum


def tagging_inside(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> Tensor:
    """See `permalign.kernels.portable.labelled.tagging_inside`."""
    log_sum: Tensor = _TaggingInside.apply(rules, root, tokens, splits, emissions, lengths)  # type: ignore[no-untyped-call]
    return log_sum


class _Rules(NamedTuple):
    """The weights of rules as a matrix ``(a, o x y)``, divided by the largest, and the logarithm of that largest.

    Every node has one rule and one split point, so that the logarithm is added to the scores of splits.
    """

    weights: Tensor
    highest: Tensor

    @classmethod
    def of(cls, rules: Tensor) -> "_Rules":
        highest = rules.amax()
        return cls((rules - highest).exp().transpose(0, 1).flatten(1), highest)

    def gradient(self, adjoint: Tensor) -> Tensor:
        """The gradient ``(2, K, K, K)`` of rules, from the adjoint of the weights ``(a, o x y)``."""
        labels = self.weights.shape[0]
        return (adjoint * self.weights).view(labels, 2, labels, labels).transpose(0, 1)


class _Chart(NamedTuple):
    """The cells of all spans, at all positions if there are any, indexed by start, width and position.

    Attributes:
        values: ``(..., K)``, the weights of labels, divided by the largest of them.
        scales: ``(...)``, the logarithms of these largest weights.
        largest: ``(...)``, the largest sums over pairs of labels, by which values were divided.
    """

    values: Tensor
    scales: Tensor
    largest: Tensor

    @classmethod
    def empty(cls, like: Tensor, *shape: int) -> "_Chart":
        """A chart of the shape ``(..., K)``."""
        return cls(like.new_zeros(shape), like.new_zeros(shape[:-1]), like.new_zeros(shape[:-1]))

    def fill(self, cells: tuple[slice | int, ...], products: "_Products", rules: _Rules) -> None:
        """Compute the cells of all spans of one width from their children."""
        values = products.pairs @ rules.weights.t()
        largest = values.amax(-1)
        self.values[cells] = values / largest[..., None]
        self.scales[cells] = products.top + largest.log()
        self.largest[cells] = largest


class _Products(NamedTuple):
    """The products of the children of all spans of one width, summed over split points.

    At a position, the children depend on the orientation o, which is an axis of both factors, ``(..., o, j, K)``.
    Without positions both orientations have the same children; the left factor is ``(..., j, o, K)``, and the right one
    ``(..., j, K)``.

    Attributes:
        weights: ``(..., o, j)`` or ``(..., j, o)``, the weights of split points.
        top: ``(...)``, the logarithm of the largest of them, by which they are divided.
        left: the values of left children, multiplied by the weights.
        right: the values of right children.
        pairs: ``(..., o x y)``, the sums over split points for each pair of labels.
    """

    weights: Tensor
    top: Tensor
    left: Tensor
    right: Tensor
    pairs: Tensor

    @classmethod
    def of(cls, left: Tensor, right: Tensor, log_weights: Tensor) -> "_Products":
        top = log_weights.amax((-2, -1))
        weights = (log_weights - top[..., None, None]).exp()
        left = left * weights[..., None]
        pairs = _as_matrices(left, right).transpose(-1, -2) @ right
        return cls(weights, top, left, right, pairs.flatten(top.dim()))

    def adjoints(self, adjoint: Tensor, rules: _Rules, rule_adjoint: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The adjoints of both factors, the left one without its weights, and of the weights' logarithms.

        Args:
            adjoint: ``(..., K)``, that of the spans' values before they were divided by the largest.
            rules: the weights of rules.
            rule_adjoint: that of these weights, to which the spans' share is added.
        """
        rule_adjoint.addmm_(adjoint.flatten(0, -2).t(), self.pairs.flatten(0, -2))
        left = _as_matrices(self.left, self.right)
        of_pairs = (adjoint @ rules.weights).view(*left.shape[:-2], left.shape[-1], adjoint.shape[-1])
        of_left = (self.right @ of_pairs.transpose(-1, -2)).view_as(self.left)
        return of_left * self.weights[..., None], left @ of_pairs, (of_left * self.left).sum(-1)


def _as_matrices(left: Tensor, right: Tensor) -> Tensor:
    """The left factor with as many axes as the right one: where that has no orientation, o and x are one axis."""
    return left.flatten(right.dim() - 1)


class _Roots(NamedTuple):
    """The root's labels: weights divided by the largest of them, that largest weight's logarithm, and values."""

    weights: Tensor
    top: Tensor
    values: Tensor

    @classmethod
    def of(cls, root: Tensor, values: Tensor, lengths: Tensor) -> "_Roots":
        """Find the roots among the values ``(batch, width, K)`` of the spans that begin with the sentence."""
        top = root.amax()
        return cls((root - top).exp(), top, values[torch.arange(len(values), device=lengths.device), lengths])

    def log_sum(self, scales: Tensor, lengths: Tensor) -> Tensor:
        """The log-weight of all trees, with the scales ``(batch, width)`` of the same spans."""
        total = (self.values @ self.weights).log() + self.top
        return total + scales.gather(1, lengths[:, None]).squeeze(1)

    def adjoints(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """The adjoints of the root's scores ``(K,)`` and of the roots' values ``(batch, K)``."""
        of_values = (grad / (self.values @ self.weights))[:, None] * self.weights
        return (of_values * self.values).sum(0), of_values


class _Inside(torch.autograd.Function):
    """Charts are ``[start, width]``; both orientations of a split have the same children."""

    @staticmethod
    def forward(
        ctx: Any, rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
    ) -> Tensor:
        batch, length, labels = tokens.shape
        weights = _Rules.of(rules)
        splits = mask_padding(splits, lengths) + weights.highest
        chart = _Chart.empty(tokens, batch, length + 1, length + 1, labels)
        chart.values[:, :length, 1], chart.scales[:, :length, 1] = _scaled(masked_tokens(tokens, lengths))
        for width in range(2, length + 1):
            spans = slice(None), slice(length - width + 1), width
            chart.fill(spans, _products(chart, splits, width), weights)
        ctx.save_for_backward(rules, root, splits, lengths, *chart)
        log_sum = _Roots.of(root, chart.values[:, 0], lengths).log_sum(chart.scales[:, 0], lengths)
        return _nan_if_extreme(log_sum, rules, root)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rules, root, splits, lengths, *saved = ctx.saved_tensors
        chart, weights = _Chart(*saved), _Rules.of(rules)
        length = chart.values.shape[1] - 1
        adjoint, of_rules = torch.zeros_like(chart.values), torch.zeros_like(weights.weights)
        of_root, of_values = _Roots.of(root, chart.values[:, 0], lengths).adjoints(grad)
        adjoint[torch.arange(len(grad), device=grad.device), 0, lengths] = of_values
        blocks = []
        for width in range(length, 1, -1):
            spans = slice(None), slice(length - width + 1), width
            passed = adjoint[spans] / chart.largest[spans][..., None]
            of_left, of_right, of_splits = _products(chart, splits, width).adjoints(passed, weights, of_rules)
            blocks.append(of_splits)
            left_children(adjoint, width).add_(of_left.sum(3))
            right_children(adjoint, width).add_(of_right)
        of_tokens = chart.values[:, :length, 1] * adjoint[:, :length, 1]
        of_splits = pack_blocks(blocks[::-1], torch.zeros_like(splits))
        return weights.gradient(of_rules), of_root, of_tokens, of_splits, None


class _TaggingInside(torch.autograd.Function):
    """Charts are ``[start, width, position]``; the children of a split depend on its orientation."""

    @staticmethod
    def forward(
        ctx: Any,
        rules: Tensor,
        root: Tensor,
        tokens: Tensor,
        splits: Tensor,
        emissions: Tensor,
        lengths: Tensor,
    ) -> Tensor:
        batch, length, labels = tokens.shape
        weights = _Rules.of(rules)
        splits = mask_padding(splits, lengths) + weights.highest
        emissions = torch.where(inside_square(lengths, length), emissions, emissions.new_zeros(()))
        chart = _Chart.empty(tokens, batch, length + 1, length + 1, length + 1, labels)
        token_values, token_scales = _scaled(masked_tokens(tokens, lengths))
        chart.values[:, :length, 1, :length] = token_values[:, :, None]
        chart.scales[:, :length, 1, :length] = emissions + token_scales[..., None]
        for width in range(2, length + 1):
            starts = slice(length - width + 1)  # of spans and of their outputs
            cells = slice(None), starts, width, starts
            chart.fill(cells, _positioned_products(chart, splits, width), weights)
        ctx.save_for_backward(rules, root, splits, lengths, *chart)
        roots = _Roots.of(root, chart.values[:, 0, :, 0], lengths)
        return _nan_if_extreme(roots.log_sum(chart.scales[:, 0, :, 0], lengths), rules, root)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rules, root, splits, lengths, *saved = ctx.saved_tensors
        chart, weights = _Chart(*saved), _Rules.of(rules)
        length = chart.values.shape[1] - 1
        adjoint, of_rules = torch.zeros_like(chart.values), torch.zeros_like(weights.weights)
        of_root, of_values = _Roots.of(root, chart.values[:, 0, :, 0], lengths).adjoints(grad)
        adjoint[torch.arange(len(grad), device=grad.device), 0, lengths, 0] = of_values
        blocks = []
        for width in range(length, 1, -1):
            starts = slice(length - width + 1)
            cells = slice(None), starts, width, starts
            passed = adjoint[cells] / chart.largest[cells][..., None]
            products = _positioned_products(chart, splits, width)
            *of_children, of_splits = products.adjoints(passed, weights, of_rules)
            blocks.append(of_splits.sum(2).transpose(2, 3))
            # from (batch, start, position, orientation, split, K)
            of_left, of_right = (of_child.transpose(2, 4).unbind(3) for of_child in of_children)
            children = PositionedChildren.of(adjoint, width)
            children.straight_left.add_(of_left[0])
            children.straight_right.add_(of_right[0])
            children.inverted_left.add_(of_left[1])
            children.inverted_right.add_(of_right[1])
        shares = chart.values[:, :length, 1, :length] * adjoint[:, :length, 1, :length]
        of_splits = pack_blocks(blocks[::-1], torch.zeros_like(splits))
        return weights.gradient(of_rules), of_root, shares.sum(2), of_splits, shares.sum(3), None


def _scaled(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The values and the scale of cells with log-weights ``(..., K)``."""
    scales = scores.amax(-1)
    return (scores - scales[..., None]).exp(), scales


def _products(chart: _Chart, splits: Tensor, width: int) -> _Products:
    """The products of all spans of one width, ``(batch, start, ...)``."""
    children = left_children(chart.scales, width) + right_children(
        chart.scales, width
    )  # (batch, start, split)
    return _Products.of(
        left_children(chart.values, width)[:, :, :, None],
        right_children(chart.values, width).contiguous(),
        width_block(splits, chart.scales.shape[1] - 1, width) + children[..., None],
    )


def _positioned_products(chart: _Chart, splits: Tensor, width: int) -> _Products:
    """The products of all spans of one width at all positions, ``(batch, start, position, ...)``."""
    values, scales = (PositionedChildren.of(part, width) for part in (chart.values, chart.scales))
    scores = width_block(splits, chart.scales.shape[1] - 1, width).transpose(2, 3)[:, :, None]
    children = scales.straight_left + scales.straight_right, scales.inverted_left + scales.inverted_right
    return _Products.of(
        _by_orientation(values.straight_left, values.inverted_left),
        _by_orientation(values.straight_right, values.inverted_right),
        scores + _by_orientation(*children),
    )


def _by_orientation(straight: Tensor, inverted: Tensor) -> Tensor:
    """``(batch, start, position, orientation, split, ...)`` from two parts ``(batch, start, split, position, ...)``."""
    return torch.stack([part.transpose(2, 3) for part in (straight, inverted)], dim=3)


def _nan_if_extreme(log_sum: Tensor, rules: Tensor, root: Tensor) -> Tensor:
    """Replace sums by NaN if scores differ so much that probabilities lose weight.

    Programs that ``torch.compile`` traces know this only when they run; others have computed such sums in logarithms.
    """
    if not torch.compiler.is_compiling():
        return log_sum
    ranges = torch.stack([scores.amax() - scores.amin() for scores in (rules, root)])
    return log_sum.masked_fill((ranges > RULE_RANGE[rules.dtype]).any(), torch.nan)
