"""Separable permutations; `permalign.kernels.portable.separable` has the recurrences, which are not repeated here.

The normal form is computed by `permalign.kernels.portable` only.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from permalign.kernels.layout import (
    inside_square,
    length_of,
    mask_padding,
    pack_blocks,
    width_block,
)
from permalign.kernels.vectorized.charts import PositionedChildren, left_children, right_children


def inside(scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.separable.inside`."""
    log_partition, gamma = _Inside.apply(scores, lengths)  # type: ignore[no-untyped-call]
    return log_partition, gamma


def span_softmax(logits: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.separable.span_softmax`."""
    rules: Tensor = _SpanSoftmax.apply(logits, lengths)  # type: ignore[no-untyped-call]
    return rules


def rule_marginals(rules: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.separable.rule_marginals`."""
    marginals: Tensor = _RuleMarginals.apply(rules, lengths)  # type: ignore[no-untyped-call]
    return marginals


def expected_matrix(rules: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.separable.expected_matrix`."""
    matrix: Tensor = _ExpectedMatrix.apply(rules, lengths)  # type: ignore[no-untyped-call]
    return matrix


def tagging_inside(scores: Tensor, emissions: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.separable.tagging_inside`."""
    log_sum: Tensor = _TaggingInside.apply(scores, emissions, lengths)  # type: ignore[no-untyped-call]
    return log_sum


class _Inside(torch.autograd.Function):
    """Gradient: see `permalign.kernels.compiled.separable.inside_backward`."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        length, batch = length_of(scores), scores.shape[0]
        scores = mask_padding(scores, lengths)
        beta = scores.new_zeros(batch, length + 1, length + 1)  # [start, width]
        blocks = []
        for width in range(2, length + 1):
            children = left_children(beta, width) + right_children(beta, width)
            block = width_block(scores, length, width) + children[..., None]
            beta[:, : length - width + 1, width] = block.flatten(2).logsumexp(-1)
            blocks.append(block)
        gamma = mask_padding(pack_blocks(blocks, scores), lengths)
        ctx.save_for_backward(gamma, lengths)
        return beta[:, 0].gather(1, lengths[:, None]).squeeze(1), gamma

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_partition: Tensor, grad_gamma: Tensor) -> tuple[Tensor, None]:
        gamma, lengths = ctx.saved_tensors
        length, batch = length_of(gamma), gamma.shape[0]
        grad_gamma = mask_padding(grad_gamma, lengths)
        adjoint = gamma.new_zeros(batch, length + 1, length + 1)  # of beta
        adjoint[:, 0].scatter_(1, lengths[:, None], grad_partition[:, None])
        blocks = []
        for width in range(length, 1, -1):
            span = adjoint[:, : length - width + 1, width, None, None]
            options = width_block(gamma, length, width)
            rules = options.flatten(2).softmax(-1).view_as(options)
            block = torch.addcmul(width_block(grad_gamma, length, width), span, rules)
            _add_to_children(adjoint, block.sum(-1), width)
            blocks.append(block)
        return pack_blocks(blocks[::-1], torch.zeros_like(gamma)), None


class _SpanSoftmax(torch.autograd.Function):
    """Gradient: ``G * (grad - sum of grad * G over the span's options)``."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, lengths: Tensor) -> Tensor:
        length = length_of(logits)
        blocks = [width_block(logits, length, width).flatten(2).softmax(-1) for width in range(2, length + 1)]
        rules = mask_padding(pack_blocks(blocks, logits), lengths)
        ctx.save_for_backward(rules)
        return rules

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (rules,) = ctx.saved_tensors
        length = length_of(rules)
        blocks = []
        for width in range(2, length + 1):
            options, passed = (width_block(splits, length, width) for splits in (rules, grad))
            mean = (options * passed).sum((2, 3), keepdim=True)
            blocks.append(options * (passed - mean))
        return pack_blocks(blocks, torch.zeros_like(rules)), None


class _RuleMarginals(torch.autograd.Function):
    """Gradient: see `permalign.kernels.compiled.separable.rule_marginals_backward`."""

    @staticmethod
    def forward(ctx: Any, rules: Tensor, lengths: Tensor) -> Tensor:
        length, batch = length_of(rules), rules.shape[0]
        mass = rules.new_zeros(batch, length + 1, length + 1)  # [start, width]
        mass[:, 0].scatter_(1, lengths[:, None], 1.0)
        blocks = []
        for width in range(length, 1, -1):
            span = mass[:, : length - width + 1, width, None, None]
            block = width_block(rules, length, width) * span
            _add_to_children(mass, block.sum(-1), width)
            blocks.append(block)
        ctx.save_for_backward(rules, mass)
        return pack_blocks(blocks[::-1], torch.zeros_like(rules))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rules, mass = ctx.saved_tensors
        length, batch = length_of(rules), rules.shape[0]
        adjoint = rules.new_zeros(batch, length + 1, length + 1)  # of mass
        blocks = []
        for width in range(2, length + 1):
            starts = length - width + 1
            children = left_children(adjoint, width) + right_children(adjoint, width)
            passed = width_block(grad, length, width) + children[..., None]
            adjoint[:, :starts, width] = (width_block(rules, length, width) * passed).sum((2, 3))
            blocks.append(passed * mass[:, :starts, width, None, None])
        return pack_blocks(blocks, torch.zeros_like(rules)), None


class _ExpectedMatrix(torch.autograd.Function):
    """Gradient: with ``c`` the adjoint of a child and ``a`` that of its parent, and both rules of a split,

    first[p]  = c_left[p] + c_right[p + u]               G_S_bar = sum_p mu(parent, p) first[p]
    second[p] = c_right[p] + c_left[p + width - u]       G_I_bar = sum_p mu(parent, p) second[p]
    a[p]      = sum over splits of G_S first[p] + G_I second[p]
    """

    @staticmethod
    def forward(ctx: Any, rules: Tensor, lengths: Tensor) -> Tensor:
        length, batch = length_of(rules), rules.shape[0]
        mu = rules.new_zeros(batch, length + 1, length + 1, length + 1)  # [start, width, position]
        mu[:, 0, :, 0].scatter_(1, lengths[:, None], 1.0)
        for width in range(length, 1, -1):
            starts = length - width + 1
            parent = mu[:, :starts, width, None, :starts]
            straight, inverted = (
                part[..., None] * parent for part in width_block(rules, length, width).unbind(-1)
            )  # (batch, start, split, position)
            children = PositionedChildren.of(mu, width)
            children.straight_left.add_(straight)
            children.straight_right.add_(straight)
            children.inverted_left.add_(inverted)
            children.inverted_right.add_(inverted)
        ctx.save_for_backward(rules, mu, lengths)
        matrix = mu[:, :length, 1, :length].transpose(1, 2)  # from (batch, token, position)
        return torch.where(inside_square(lengths, length), matrix, torch.eye(length).to(matrix))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rules, mu, lengths = ctx.saved_tensors
        length = length_of(rules)
        adjoint = torch.zeros_like(mu)
        adjoint[:, :length, 1, :length] = torch.where(
            inside_square(lengths, length), grad.transpose(1, 2), grad.new_zeros(())
        )
        blocks = []
        for width in range(2, length + 1):
            starts = length - width + 1
            children = PositionedChildren.of(adjoint, width)
            both = torch.stack(  # (batch, start, split, rule, position)
                [
                    children.straight_left + children.straight_right,
                    children.inverted_left + children.inverted_right,
                ],
                dim=3,
            ).flatten(2, 3)
            parent = mu[:, :starts, width, :starts]
            options = width_block(rules, length, width).flatten(2)
            adjoint[:, :starts, width, :starts] = (options[:, :, None] @ both).squeeze(2)
            blocks.append(both @ parent[..., None])
        return pack_blocks(blocks, torch.zeros_like(rules)), None


class _TaggingInside(torch.autograd.Function):
    """Gradient: the adjoint of a cell is divided among its terms in proportion to their weights."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, emissions: Tensor, lengths: Tensor) -> Tensor:
        length, batch = length_of(scores), scores.shape[0]
        scores = mask_padding(scores, lengths)
        chart = scores.new_zeros(batch, length + 1, length + 1, length + 1)  # [start, width, position]
        chart[:, :length, 1, :length] = torch.where(
            inside_square(lengths, length), emissions, emissions.new_zeros(())
        )
        for width in range(2, length + 1):
            starts = length - width + 1
            chart[:, :starts, width, :starts] = _tagging_terms(scores, chart, width).logsumexp(2)
        ctx.save_for_backward(scores, chart, lengths)
        return chart[:, 0, :, 0].gather(1, lengths[:, None]).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        scores, chart, lengths = ctx.saved_tensors
        length = length_of(scores)
        adjoint = torch.zeros_like(chart)
        adjoint[:, 0, :, 0].scatter_(1, lengths[:, None], grad[:, None])
        blocks = []
        for width in range(length, 1, -1):
            starts = length - width + 1
            shares = _tagging_terms(scores, chart, width).softmax(2)
            shares *= adjoint[:, :starts, width, None, :starts]
            straight, inverted = shares.chunk(2, dim=2)
            blocks.append(torch.stack([straight.sum(-1), inverted.sum(-1)], dim=-1))
            children = PositionedChildren.of(adjoint, width)
            children.straight_left.add_(straight)
            children.straight_right.add_(straight)
            children.inverted_left.add_(inverted)
            children.inverted_right.add_(inverted)
        grad_scores = pack_blocks(blocks[::-1], torch.zeros_like(scores))
        return grad_scores, adjoint[:, :length, 1, :length].contiguous(), None


def _tagging_terms(scores: Tensor, chart: Tensor, width: int) -> Tensor:
    """What each option of a span weighs at each position: ``(batch, start, rule and split, position)``."""
    length = chart.shape[1] - 1
    straight, inverted = width_block(scores, length, width)[..., None].unbind(3)
    children = PositionedChildren.of(chart, width)
    terms = [
        children.straight_left + children.straight_right + straight,
        children.inverted_left + children.inverted_right + inverted,
    ]
    return torch.cat(terms, dim=2)


def _add_to_children(chart: Tensor, passed: Tensor, width: int) -> None:
    """Add what each split of the spans of one width passes on to both of its children."""
    left_children(chart, width).add_(passed)
    right_children(chart, width).add_(passed)
