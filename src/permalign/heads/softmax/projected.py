"""The normaliser of an additive softmax, computed from the features that its logits are projections of."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from permalign.heads.softmax.additive import underflows
from permalign.precision import low_precision_dtype
from permalign.products import linear, weight_gradient
from permalign.shapes import Float


def projected_log_normaliser(
    cells: Float[Tensor, "batch cells cell_size"],
    steps: Float[Tensor, "batch steps step_size"],
    cell_weight: Float[Tensor, "vocab cell_size"],
    step_weight: Float[Tensor, "vocab step_size"],
    bias: Float[Tensor, " vocab"],
) -> Float[Tensor, "batch cells steps"]:
    """Compute ``log Z(i,j) = logsumexp_w (W_w h_i + b_w + U_w s_j)``, as in `additive_word_log_probs`.

    With a large vocabulary, logits are by far the largest tensors of a model. Here they are exponentiated in place, and
    their gradients are computed and used one after the other, so that no copy of either is kept.

    Args:
        cells: ``h_i``.
        steps: ``s_j``.
        cell_weight: ``W``.
        step_weight: ``U``.
        bias: ``b``; -inf removes a token from the sum.

    >>> cells, steps, weight = torch.zeros(1, 1, 2), torch.zeros(1, 1, 3), torch.randn(4, 5)
    >>> projected_log_normaliser(cells, steps, weight[:, :2], weight[:, 2:], torch.zeros(4)).exp()
    tensor([[[4.]]])
    """
    dtype = low_precision_dtype() or cells.dtype
    log_normaliser: Tensor = _LogNormaliser.apply(cells, steps, cell_weight, step_weight, bias, dtype)  # type: ignore[no-untyped-call]
    return log_normaliser


class _LogNormaliser(torch.autograd.Function):
    """With ``P = exp(A - max A)`` and ``Q = exp(B - max B)`` of the two terms of the logits, ``Z_ij = P_i . Q_j``.

    The gradient of ``log Z_ij`` with respect to the logits is the softmax, ``P_iw Q_jw / Z_ij``; so that of ``A_iw`` is
    ``P_iw sum_j (g_ij / Z_ij) Q_jw``. Pairs whose Z underflows are recomputed from their own logits. With mixed
    precision, products with the weights are computed in low precision, and exponentials and their sums are not.
    """

    @staticmethod
    def forward(
        ctx: Any,
        cells: Tensor,
        steps: Tensor,
        cell_weight: Tensor,
        step_weight: Tensor,
        bias: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        ctx.dtype = dtype
        scaled_cells, cell_top = _exponentials_in_place(_project(cells, cell_weight, bias, dtype))
        scaled_steps, step_top = _exponentials_in_place(_project(steps, step_weight, None, dtype))
        product = scaled_cells @ scaled_steps.transpose(1, 2)  # (batch, cells, steps)
        log_normaliser = product.log() + cell_top + step_top.transpose(1, 2)
        lost = underflows(product)
        if bool(lost.any()):
            index = lost.nonzero(as_tuple=True)
            logits = _logits_at(index, cells, steps, cell_weight, step_weight, bias)
            log_normaliser[index] = logits.logsumexp(-1)
        ctx.save_for_backward(
            cells,
            steps,
            cell_weight,
            step_weight,
            bias,
            scaled_cells,
            scaled_steps,
            product,
            log_normaliser,
        )
        return log_normaliser

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, scaled_cells, scaled_steps, product, log_normaliser = ctx.saved_tensors
        cells, steps, cell_weight, step_weight, _ = inputs

        # Pairs that underflow take no part in the matrix products below (their ratio is 0); their exact softmax,
        # times the incoming gradient, is added to the logits of their cell and of their step.
        lost = underflows(product)
        index = lost.nonzero(as_tuple=True)
        log_softmax = _logits_at(index, *inputs) - log_normaliser[index][:, None]
        exact = log_softmax.exp() * gradient[index][:, None]
        ratio = torch.where(lost, 0.0, gradient / product)

        # The gradients of the cells' logits are used up before those of the steps' logits are made: both are as
        # large as the logits.
        logit_gradient = (
            (ratio @ scaled_steps).mul_(scaled_cells).index_put_(index[:2], exact, accumulate=True)
        )
        cell_gradient = _project(logit_gradient, cell_weight.T, None, ctx.dtype)
        bias_gradient = logit_gradient.sum((0, 1))
        cell_weight_gradient = _weight_gradient(logit_gradient, cells, ctx.dtype)

        logit_gradient = (ratio.transpose(1, 2) @ scaled_cells).mul_(scaled_steps)
        logit_gradient.index_put_((index[0], index[2]), exact, accumulate=True)
        step_weight_gradient = _weight_gradient(logit_gradient, steps, ctx.dtype)
        step_gradient = _project(logit_gradient, step_weight.T, None, ctx.dtype)
        return cell_gradient, step_gradient, cell_weight_gradient, step_weight_gradient, bias_gradient, None


def _project(features: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Compute a linear layer in the given precision, and return it in that of the features."""
    lowered = None if bias is None else bias.to(dtype)
    return linear(features.to(dtype), weight.to(dtype), lowered).to(features.dtype)


def _weight_gradient(logit_gradient: Tensor, features: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute the gradient of a weight in the given precision, and return it in that of the features."""
    gradient, inputs = (x.flatten(0, 1).to(dtype) for x in (logit_gradient, features))
    return weight_gradient(gradient, inputs).to(features.dtype)


def _exponentials_in_place(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Overwrite logits by ``exp(logits - top)``, with ``top`` the largest of each row; return both."""
    top = logits.amax(-1, keepdim=True)
    return logits.sub_(top).exp_(), top


def _logits_at(
    index: tuple[Tensor, ...],
    cells: Tensor,
    steps: Tensor,
    cell_weight: Tensor,
    step_weight: Tensor,
    bias: Tensor,
) -> Tensor:
    """Return the logits ``(pairs, vocab)`` of the pairs at ``index = (row, cell, step)``."""
    row, cell, step = index
    return linear(cells[row, cell], cell_weight, bias) + linear(steps[row, step], step_weight)
