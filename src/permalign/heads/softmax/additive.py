"""A softmax over words whose logits are sums: one part per source cell, one per output step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from permalign.checks import require_floats, shape_of
from permalign.shapes import Float, Int


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
    _check(cell_logits, step_logits, targets)
    log_normaliser = summed_over_words(Exponentials.of(cell_logits), Exponentials.of(step_logits))
    wanted = targets[:, None].expand(-1, cell_logits.shape[1], -1)
    from_cells = cell_logits.gather(2, wanted)
    from_steps = step_logits.gather(2, targets[..., None]).transpose(1, 2)
    return from_cells + from_steps - log_normaliser


@dataclass(frozen=True)
class Exponentials:
    """Logits ``(batch, rows, words)``, and their ``parts = exp(logits - top)`` by the largest of each row.

    The largest is a constant to subtract, so it carries no gradient. Every row must allow at least one word.
    """

    logits: Tensor
    parts: Tensor
    top: Tensor

    @staticmethod
    def of(logits: Tensor) -> "Exponentials":
        """Of any logits."""
        top = logits.detach().amax(-1, keepdim=True)
        return Exponentials(logits, (logits - top).exp(), top)


def summed_over_words(cells: Exponentials, steps: Exponentials) -> Float[Tensor, "batch cells steps"]:
    """``log Z(i,j)`` of all cells and steps."""
    product = cells.parts @ steps.parts.transpose(1, 2)  # (batch, cells, steps)
    lost = too_small(product.detach())
    log_normaliser = torch.where(lost, 1.0, product).log() + cells.top + steps.top.transpose(1, 2)
    if bool(lost.any()):
        row, cell, step = lost.nonzero(as_tuple=True)
        exact = (cells.logits[row, cell] + steps.logits[row, step]).logsumexp(-1)
        log_normaliser = log_normaliser.index_put((row, cell, step), exact)
    return log_normaliser


def too_small(product: Tensor) -> Tensor:
    """Where a sum of products lost too much: terms below the smallest number vanish, which larger sums bear."""
    least: float = torch.finfo(product.dtype).tiny ** 0.6
    return product < least


def _check(cell_logits: Tensor, step_logits: Tensor, targets: Tensor) -> None:
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
    if not isinstance(targets, Tensor):
        raise ValueError(f"targets must be a tensor of whole numbers, not {type(targets).__name__}.")
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
