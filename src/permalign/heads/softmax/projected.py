"""The normaliser of an additive softmax straight from what its logits are projections of."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from permalign.heads.softmax.additive import too_small
from permalign.shapes import Float


def projected_log_normaliser(
    cells: Float[Tensor, "batch cells cell_width"],
    steps: Float[Tensor, "batch steps step_width"],
    cell_weight: Float[Tensor, "words cell_width"],
    step_weight: Float[Tensor, "words step_width"],
    bias: Float[Tensor, " words"],
) -> Float[Tensor, "batch cells steps"]:
    """``log Z(i,j) = logsumexp_w (W_w h_i + b_w + U_w s_j)``, as `additive_word_log_probs` has it.

    With a large vocabulary, logits are by far the largest tensors of a model. Here they are made into exponentials in
    place, and their gradients are made and used one after the other, with no copy of either.

    Args:
        cells: ``h_i``.
        steps: ``s_j``.
        cell_weight: ``W``.
        step_weight: ``U``.
        bias: ``b``; -inf leaves a word out.

    >>> cells, steps, weight = torch.zeros(1, 1, 2), torch.zeros(1, 1, 3), torch.randn(4, 5)
    >>> projected_log_normaliser(cells, steps, weight[:, :2], weight[:, 2:], torch.zeros(4)).exp()
    tensor([[[4.]]])
    """
    answer: Tensor = _LogNormaliser.apply(cells, steps, cell_weight, step_weight, bias)  # type: ignore[no-untyped-call]
    return answer


class _LogNormaliser(torch.autograd.Function):
    """With parts ``P = exp(A - max A)``, ``Q = exp(B - max B)`` of the two logits, ``Z_ij = P_i . Q_j``.

    The gradient of ``log Z_ij`` in the logits of both is the softmax, ``P_iw Q_jw / Z_ij``; so that of ``A_iw`` is
    ``P_iw sum_j (g_ij / Z_ij) Q_jw``. Pairs whose Z underflows are computed anew from their own logits.
    """

    @staticmethod
    def forward(
        ctx: Any, cells: Tensor, steps: Tensor, cell_weight: Tensor, step_weight: Tensor, bias: Tensor
    ) -> Tensor:
        cell_parts, cell_top = _exponentials(linear(cells, cell_weight, bias))
        step_parts, step_top = _exponentials(linear(steps, step_weight))
        product = cell_parts @ step_parts.transpose(1, 2)  # (batch, cells, steps)
        answer = product.log() + cell_top + step_top.transpose(1, 2)
        lost = too_small(product)
        if bool(lost.any()):
            place = lost.nonzero(as_tuple=True)
            answer[place] = _logits(place, cells, steps, cell_weight, step_weight, bias).logsumexp(-1)
        ctx.save_for_backward(
            cells, steps, cell_weight, step_weight, bias, cell_parts, step_parts, product, answer
        )
        return answer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        *inputs, cell_parts, step_parts, product, answer = ctx.saved_tensors
        cells, steps, cell_weight, step_weight, _ = inputs
        lost = too_small(product)
        place = lost.nonzero(as_tuple=True)
        share = (_logits(place, *inputs) - answer[place][:, None]).exp() * gradient[place][:, None]
        ratio = torch.where(lost, 0.0, gradient / product)

        for_logits = (ratio @ step_parts).mul_(cell_parts).index_put_(place[:2], share, accumulate=True)
        for_cells, for_bias = for_logits @ cell_weight, for_logits.sum((0, 1))
        for_cell_weight = for_logits.flatten(0, 1).T @ cells.flatten(0, 1)

        for_logits = (ratio.transpose(1, 2) @ cell_parts).mul_(step_parts)
        for_logits.index_put_((place[0], place[2]), share, accumulate=True)
        for_step_weight = for_logits.flatten(0, 1).T @ steps.flatten(0, 1)
        return for_cells, for_logits @ step_weight, for_cell_weight, for_step_weight, for_bias


def _exponentials(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The logits' exponentials, by the largest of each row, in their place; and the largest."""
    top = logits.amax(-1, keepdim=True)
    return logits.sub_(top).exp_(), top


def _logits(
    place: tuple[Tensor, ...],
    cells: Tensor,
    steps: Tensor,
    cell_weight: Tensor,
    step_weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """The logits of all words, ``(places, words)``, at some places ``(row, cell, step)``."""
    row, cell, step = place
    return linear(cells[row, cell], cell_weight, bias) + linear(steps[row, step], step_weight)
