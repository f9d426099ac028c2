"""A softmax over words whose logits are sums: one part per source cell, one per output step."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from permalign.shapes import Float, Int
from permalign.structures.validation import require_floats, shape_of


def additive_word_log_probs(
    cell_logits: Float[Tensor, "batch cells words"],
    step_logits: Float[Tensor, "batch steps words"],
    targets: Int[Tensor, "batch steps"],
) -> Float[Tensor, "batch cells steps"]:
    """Log-probabilities of the target words under ``softmax(A_i + B_j)``, without the (cells, steps, words) cube.

        log Z(i,j) = max A_i + max B_j + log( exp(A_i - max A_i) . exp(B_j - max B_j) )

    is one matrix product. Where it comes close to underflow (the two parts prefer different words), that pair is
    computed anew from its own logits. O((I + J) V + I J) memory.

    Args:
        cell_logits: A, ``(batch, cells, words)``; -inf forbids a word at a cell (the end of sentence before the end).
        step_logits: B, ``(batch, steps, words)``; likewise.
        targets: ``(batch, steps)``, the word written at every step.

    >>> cells, steps = torch.zeros(1, 1, 4), torch.tensor([[[0.0, 0.0, 0.0, -torch.inf]]])
    >>> additive_word_log_probs(cells, steps, torch.tensor([[2]])).exp()
    tensor([[[0.3333]]])
    """
    _check(cell_logits, step_logits)
    _check_targets(targets, step_logits)
    wanted = targets[:, None].expand(-1, cell_logits.shape[1], -1)
    from_cells = cell_logits.gather(2, wanted)
    from_steps = step_logits.gather(2, targets[..., None]).transpose(1, 2)
    return from_cells + from_steps - additive_log_normaliser(cell_logits, step_logits)


def additive_log_normaliser(
    cell_logits: Float[Tensor, "batch cells words"], step_logits: Float[Tensor, "batch steps words"]
) -> Float[Tensor, "batch cells steps"]:
    """``log Z(i,j) = logsumexp_w (A_iw + B_jw)`` of `additive_word_log_probs` alone.

    For whoever has the logits of the words wanted at hand: what is gathered from a wide tensor costs a gradient as
    wide as that tensor.

    >>> additive_log_normaliser(torch.zeros(1, 1, 4), torch.zeros(1, 2, 4)).exp()
    tensor([[[4., 4.]]])
    """
    _check(cell_logits, step_logits)
    answer: Tensor = _LogNormaliser.apply(cell_logits, step_logits)  # type: ignore[no-untyped-call]
    return answer


@dataclass(frozen=True)
class Exponentials:
    """Logits ``(batch, rows, words)``, and their ``parts = exp(logits - top)`` by the largest of each row."""

    logits: Tensor
    parts: Tensor
    top: Tensor

    @staticmethod
    def of(logits: Tensor) -> "Exponentials":
        """Of any rows that allow at least one word."""
        top = logits.amax(-1, keepdim=True)
        return Exponentials(logits, (logits - top).exp_(), top)


def too_small(product: Tensor) -> Tensor:
    """Where a sum of products lost too much: terms below the smallest number vanish, which larger sums bear."""
    least: float = torch.finfo(product.dtype).tiny ** 0.6
    return product < least


def summed_over_words(cells: Exponentials, steps: Exponentials) -> tuple[Tensor, Tensor]:
    """``log Z`` and the product it comes from, both ``(batch, cells, steps)``; exact where the product is not."""
    product = cells.parts @ steps.parts.transpose(1, 2)
    log_normaliser = product.log() + cells.top + steps.top.transpose(1, 2)
    lost = too_small(product)
    if bool(lost.any()):
        row, cell, step = lost.nonzero(as_tuple=True)
        log_normaliser[lost] = (cells.logits[row, cell] + steps.logits[row, step]).logsumexp(-1)
    return log_normaliser, product


class _LogNormaliser(torch.autograd.Function):
    """The formula above; its gradient is a softmax, ``P_iw sum_j (g_ij / Z_ij) Q_jw`` for the cells' parts."""

    @staticmethod
    def forward(ctx: Any, cell_logits: Tensor, step_logits: Tensor) -> Tensor:
        cells, steps = Exponentials.of(cell_logits), Exponentials.of(step_logits)
        answer, product = summed_over_words(cells, steps)
        ctx.save_for_backward(cell_logits, step_logits, cells.parts, steps.parts, product, answer)
        return answer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        cell_logits, step_logits, cell_parts, step_parts, product, answer = ctx.saved_tensors
        lost = too_small(product)
        ratio = torch.where(lost, 0.0, gradient / product)  # (batch, cells, steps)
        for_cells = (ratio @ step_parts).mul_(cell_parts)
        for_steps = (ratio.transpose(1, 2) @ cell_parts).mul_(step_parts)
        if bool(lost.any()):
            row, cell, step = lost.nonzero(as_tuple=True)
            share = (cell_logits[row, cell] + step_logits[row, step] - answer[lost][:, None]).exp_()
            share *= gradient[lost][:, None]
            for_cells.index_put_((row, cell), share, accumulate=True)
            for_steps.index_put_((row, step), share, accumulate=True)
        return for_cells, for_steps


def _check(cell_logits: Tensor, step_logits: Tensor) -> None:
    require_floats({"cell_logits": cell_logits, "step_logits": step_logits})
    for name, logits in (("cell_logits", cell_logits), ("step_logits", step_logits)):
        if logits.dim() != 3:
            raise ValueError(f"{name} has shape {shape_of(logits)}, but must have three axes, words last.")
    same = cell_logits.shape[0] == step_logits.shape[0] and cell_logits.shape[2] == step_logits.shape[2]
    if not same:
        raise ValueError(
            f"cell_logits {shape_of(cell_logits)} and step_logits {shape_of(step_logits)} must agree in batch and "
            "words: (batch, cells, words) and (batch, steps, words)."
        )


def _check_targets(targets: Tensor, step_logits: Tensor) -> None:
    if targets.shape != step_logits.shape[:2] or targets.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"targets has shape {shape_of(targets)} and dtype {targets.dtype}, but must be "
            f"{tuple(step_logits.shape[:2])} whole numbers: one word for every step of step_logits."
        )
    words = step_logits.shape[2]
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < words:
        raise ValueError(
            f"targets go from {int(targets.min())} to {int(targets.max())}, but step_logits {shape_of(step_logits)} "
            f"knows the words 0..{words - 1}. Give padding any of these; its result is to be ignored."
        )
