"""Scores of splits; `permalign.kernels.portable.scoring` has the formula and the meaning of the arguments.

Hidden units are never stored. The backward pass computes them again, and their dropout mask, one width at a time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from permalign.kernels.layout import mask_padding, split_count, split_offset
from permalign.kernels.numerics import dropout_scale
from permalign.kernels.portable.scoring import by_role, kept_units


def split_scores(
    projections: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> Tensor:
    """See `permalign.kernels.portable.scoring.split_scores`."""
    scores: Tensor = _SplitScores.apply(projections, hidden_bias, weight, bias, lengths, seed, dropout)  # type: ignore[no-untyped-call]
    return scores


class _SplitScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projections: Tensor,
        hidden_bias: Tensor,
        weight: Tensor,
        bias: Tensor,
        lengths: Tensor,
        seed: Tensor,
        dropout: float,
    ) -> Tensor:
        length = projections.shape[1] - 1
        start, middle, end = by_role(projections, hidden_bias)
        scores = projections.new_empty(projections.shape[0], split_count(length), 2)
        for width in range(2, length + 1):
            outer, windows = _summands(start, middle, end, width)
            block = scores[:, split_offset(length, width) : split_offset(length, width + 1)]
            if dropout > 0:
                units = (outer + windows).relu_()
                units *= _dropout_factors(units, seed, length, width, dropout)
                block.copy_(units.flatten(1, 2) @ weight.T)
            else:
                # relu(x + y) = max(x, -y) + y, whose second term is the same for all splits of a span
                of_splits = torch.maximum(windows, -outer) @ weight.T
                block.copy_((of_splits + outer @ weight.T).flatten(1, 2))
        scores += bias
        ctx.save_for_backward(projections, hidden_bias, weight, lengths, seed)
        ctx.dropout = dropout
        return mask_padding(scores, lengths)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        projections, hidden_bias, weight, lengths, seed = ctx.saved_tensors
        length = projections.shape[1] - 1
        start, middle, end = by_role(projections, hidden_bias)
        grad = mask_padding(grad, lengths)
        grad_start, grad_middle, grad_end, grad_weight = (
            torch.zeros_like(tensor) for tensor in (start, middle, end, weight)
        )
        for width in range(2, length + 1):
            starts = length - width + 1
            block = grad[:, split_offset(length, width) : split_offset(length, width + 1)]
            outer, windows = _summands(start, middle, end, width)
            units = outer + windows
            # zero where the unit is, from here on
            adjoint = torch.ops.aten.threshold_backward((block @ weight).view_as(units), units, 0)
            units.relu_()
            if ctx.dropout > 0:
                factors = _dropout_factors(units, seed, length, width, ctx.dropout)
                adjoint *= factors
                units *= factors
            grad_weight.addmm_(block.flatten(0, 1).T, units.flatten(0, 2))
            of_spans = adjoint.sum(2)
            grad_start[:, :starts] += of_spans
            grad_end[:, width:] += of_spans
            fenceposts = torch.arange(length + 1, device=start.device)[1:-1].unfold(0, width - 1, 1)
            grad_middle.index_add_(1, fenceposts.flatten(), adjoint.flatten(1, 2))
        return (
            torch.stack([grad_middle - grad_start, grad_end - grad_middle], dim=-1),
            grad_middle.sum((0, 1)),
            grad_weight,
            grad.sum((0, 1)),
            None,
            None,
            None,
        )


def _summands(start: Tensor, middle: Tensor, end: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """What is added before the relu, for all splits of one width: ``start_i + end_k`` and ``middle_j``.

    Both are ``(batch, start, split, hidden)``; the first has one entry for all splits of a span.
    """
    starts = start.shape[1] - width
    outer = (start[:, :starts] + end[:, width:])[:, :, None]
    windows = middle[:, 1:-1].unfold(1, width - 1, 1).transpose(2, 3)  # [i, u - 1] is fencepost i + u
    return outer, windows


def _dropout_factors(units: Tensor, seed: Tensor, length: int, width: int, dropout: float) -> Tensor:
    """Zero where a hidden unit is dropped, and the factor that keeps the mean elsewhere; like ``units``."""
    items = torch.arange(units.shape[0], device=units.device)
    splits = torch.arange(split_offset(length, width), split_offset(length, width + 1), device=units.device)
    kept = kept_units(seed, items, splits, units.shape[-1], dropout).view_as(units)
    return kept.to(units.dtype).mul_(dropout_scale(dropout)[1])
