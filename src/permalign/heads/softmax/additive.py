"""A softmax whose logits are sums of two terms, one per source cell and one per output step."""

from dataclasses import dataclass

import torch
from torch import Tensor

from permalign.checks import require_floats, shape_of
from permalign.shapes import Bool, Float, Int


def additive_word_log_probs(
    cell_logits: Float[Tensor, "batch cells vocab"],
    step_logits: Float[Tensor, "batch steps vocab"],
    targets: Int[Tensor, "batch steps"],
) -> Float[Tensor, "batch cells steps"]:
    """Return log-probabilities of targets under ``softmax(A_i + B_j)``, without a (cells, steps, vocab) tensor.

        log Z(i,j) = max A_i + max B_j + log( exp(A_i - max A_i) . exp(B_j - max B_j) )

    is a single matrix product. Where it comes close to underflow (the two terms prefer different tokens), that pair is
    recomputed from its own logits. O((I + J) V + I J) memory.

    Args:
        cell_logits: A, ``(batch, cells, vocab)``; -inf forbids a token at a cell (the end of sentence before the end).
        step_logits: B, ``(batch, steps, vocab)``; -inf forbids a token at a step.
        targets: ``(batch, steps)``, the token id written at every step.

    >>> cells, steps = torch.zeros(1, 1, 4), torch.tensor([[[0.0, 0.0, 0.0, -torch.inf]]])
    >>> additive_word_log_probs(cells, steps, torch.tensor([[2]])).exp()
    tensor([[[0.3333]]])
    """
    _check(cell_logits, step_logits, targets)
    log_normaliser = additive_log_normaliser(Exponentials.of(cell_logits), Exponentials.of(step_logits))
    of_cells = cell_logits.gather(2, targets[:, None].expand(-1, cell_logits.shape[1], -1))
    of_steps = step_logits.gather(2, targets[..., None]).transpose(1, 2)
    return of_cells + of_steps - log_normaliser


@dataclass(frozen=True)
class Exponentials:
    """Logits ``(batch, rows, vocab)``, and ``scaled = exp(logits - top)`` with ``top`` the largest logit of each row.

    ``top`` is subtracted as a constant, so it carries no gradient. Every row must allow at least one token.
    """

    logits: Tensor
    scaled: Tensor
    top: Tensor

    @classmethod
    def of(cls, logits: Float[Tensor, "batch rows vocab"]) -> "Exponentials":
        """Compute the exponentials of logits."""
        top = logits.detach().amax(-1, keepdim=True)
        return cls(logits, (logits - top).exp(), top)

    def select(self, rows: Int[Tensor, " new"]) -> "Exponentials":
        """Return some rows of the batch."""
        return Exponentials(self.logits[rows], self.scaled[rows], self.top[rows])


def additive_log_normaliser(cells: Exponentials, steps: Exponentials) -> Float[Tensor, "batch cells steps"]:
    """Compute ``log Z(i,j) = log sum_w exp(A_iw + B_jw)`` for all cells and steps."""
    product = torch.bmm(cells.scaled, steps.scaled.transpose(1, 2))  # (batch, cells, steps)
    lost = underflows(product.detach())
    log_normaliser = torch.where(lost, 1.0, product).log() + cells.top + steps.top.transpose(1, 2)
    if bool(lost.any()):
        row, cell, step = lost.nonzero(as_tuple=True)
        exact = (cells.logits[row, cell] + steps.logits[row, step]).logsumexp(-1)
        log_normaliser = log_normaliser.index_put((row, cell, step), exact)
    return log_normaliser


def log_mixture(
    weights: Float[Tensor, "batch rows cells"], cells: Exponentials, allowed: Bool[Tensor, " vocab"]
) -> Float[Tensor, "batch rows vocab"]:
    """Compute ``log sum_i exp(weight_i + A_iw)`` for all tokens w: a sum over cells as a matrix product.

    Args:
        weights: the log-weight of every cell i.
        cells: A.
        allowed: the tokens that may have a finite logit; the others are not worth recomputing.
    """
    raised = weights + cells.top.transpose(1, 2)
    top = raised.amax(-1, keepdim=True)
    product = torch.bmm((raised - top).exp(), cells.scaled)
    lost = underflows(product) & allowed
    mixture = product.log_().add_(top)
    if bool(lost.any()):
        batch, row, token = lost.nonzero(as_tuple=True)
        mixture[lost] = (weights[batch, row] + cells.logits[batch, :, token]).logsumexp(-1)
    return mixture


def underflows(product: Tensor) -> Bool[Tensor, "..."]:
    """Return where a sum of products is so small that terms which vanished may matter."""
    least: float = torch.finfo(product.dtype).tiny ** 0.6
    return product < least


def _check(cell_logits: Tensor, step_logits: Tensor, targets: Tensor) -> None:
    require_floats({"cell_logits": cell_logits, "step_logits": step_logits})
    for name, logits in (("cell_logits", cell_logits), ("step_logits", step_logits)):
        if logits.dim() != 3:
            raise ValueError(
                f"{name} has shape {shape_of(logits)}, but must have three axes, the vocabulary last."
            )
    if cell_logits.shape[0] != step_logits.shape[0] or cell_logits.shape[2] != step_logits.shape[2]:
        raise ValueError(
            f"cell_logits {shape_of(cell_logits)} and step_logits {shape_of(step_logits)} must agree in batch and "
            "vocabulary: (batch, cells, vocab) and (batch, steps, vocab)."
        )
    if not isinstance(targets, Tensor):
        raise ValueError(f"targets must be a tensor of token ids, not {type(targets).__name__}.")
    if targets.shape != step_logits.shape[:2] or targets.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            f"targets has shape {shape_of(targets)} and dtype {targets.dtype}, but must be "
            f"{tuple(step_logits.shape[:2])} integers: one token id for every step of step_logits."
        )
    vocab_size = step_logits.shape[2]
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < vocab_size:
        raise ValueError(
            f"targets go from {int(targets.min())} to {int(targets.max())}, but step_logits {shape_of(step_logits)} "
            f"has the token ids 0..{vocab_size - 1}. Give padding any of these, and ignore its result."
        )
