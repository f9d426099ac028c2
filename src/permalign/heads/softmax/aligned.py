"""Tokens at every pair of a source cell and an output step, where only the last cell can write END."""

import torch
from torch import Tensor
from torch.nn import functional

from permalign.heads.softmax.cell_step import CellStepSoftmax
from permalign.shapes import Bool, Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID


class AlignedSoftmax(CellStepSoftmax):
    """``p(w | i, j) = softmax_w(W [h_i ; s_j] + b)`` as two projections, one of cells and one of steps.

    Padding and BEGIN are never written, END only at the last cell of a sentence. So `cell_logits` exclude all three
    (a bias of -inf), and the logit of END, one number for each step, is added at the last cell. The logit of a given
    token is a product with that token's own weights, and the mean logit one with the mean weights: only the normaliser
    touches the whole vocabulary at every cell and step.

    If the last cell writes nothing but END, END has probability one there, and all words are written at other cells.

    Args:
        cell_size: the size of the cells ``h_i``.
        step_size: the size of the steps ``s_j``.
        vocab_size: the size of the vocabulary, special tokens included.
        num_negatives: in training, how many tokens are drawn for each batch to stand for those that are not in it; None
            for the whole vocabulary.
        words_at_last: whether the last cell writes words as well as END.
    """

    def __init__(
        self,
        cell_size: int,
        step_size: int,
        vocab_size: int,
        num_negatives: int | None = None,
        words_at_last: bool = True,
    ) -> None:
        super().__init__()
        self.words_at_last = words_at_last
        never_written = [PADDING_ID, BEGIN_ID, END_ID]
        self._add_projections(cell_size, step_size, vocab_size, never_written, num_negatives)

    def end_logits(
        self,
        cells: Float[Tensor, "batch cells cell_size"],
        steps: Float[Tensor, "batch steps step_size"],
        last: Bool[Tensor, "batch cells"],
    ) -> Float[Tensor, "batch steps"]:
        """Return the logit of END at every step, at the last cell."""
        of_cell = cells[last] @ self.of_cells.weight[END_ID] + self.of_cells.bias[END_ID]  # (batch,)
        return of_cell[:, None] + steps @ self.of_steps.weight[END_ID]

    def log_probs(
        self,
        cells: Float[Tensor, "batch cells cell_size"],
        steps: Float[Tensor, "batch steps step_size"],
        last: Bool[Tensor, "batch cells"],
        tokens: Int[Tensor, "batch steps"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "batch cells steps"]:
        """Return the log-probability of each step's token at every cell.

        Args:
            cells: ``h_i``.
            steps: ``s_j``.
            last: true at the last cell of every sentence, and only there.
            tokens: the token id of every step.
            smoothing: the weight of the mean over all tokens that can be written at the cell.
        """
        without_end = self.log_normaliser(cells, steps, tokens)
        # the logits of the given tokens and of END, in one product
        logits = self._logits_of(cells, steps, torch.stack([tokens, torch.full_like(tokens, END_ID)]))
        end = logits[1][last]  # (batch, steps)
        impossible = (tokens == END_ID)[:, None] & ~last[:, :, None]
        if not self.words_at_last:
            impossible = impossible | ((tokens != END_ID)[:, None] & last[:, :, None])
        mixed = logits[0].masked_fill(impossible, -torch.inf)
        if smoothing:
            mean = self._mean_logits_with_end(cells, steps, end, last)
            mixed = (1 - smoothing) * mixed + smoothing * mean
        return mixed - self.add_end(without_end, end, last)

    def add_end(
        self,
        log_normaliser: Float[Tensor, "batch cells steps"],
        end_logits: Float[Tensor, "batch steps"],
        last: Bool[Tensor, "batch cells"],
    ) -> Float[Tensor, "batch cells steps"]:
        """Add END to the normaliser of words at the last cell of every sentence, or put it in their place."""
        end = end_logits[:, None]
        at_last = torch.logaddexp(log_normaliser, end) if self.words_at_last else end
        return torch.where(last[:, :, None], at_last, log_normaliser)

    def _logits_of(self, cells: Tensor, steps: Tensor, tokens: Tensor) -> Tensor:
        """Return the logits ``(..., batch, cells, steps)`` of given tokens, from their own rows of weights."""
        cell_weight = functional.embedding(tokens, self.of_cells.weight)  # (..., batch, steps, cell_size)
        step_weight = functional.embedding(tokens, self.of_steps.weight)
        of_steps = (step_weight * steps).sum(-1) + self.of_cells.bias[tokens]
        return cells @ cell_weight.transpose(-1, -2) + of_steps[..., None, :]

    def _mean_logits_with_end(self, cells: Tensor, steps: Tensor, end: Tensor, last: Tensor) -> Tensor:
        """Return the mean logits ``(batch, cells, steps)`` of what can be written; at the last cell, END too."""
        count = self.allowed.to(cells).sum()
        mean = self.mean_logits(cells, steps)
        at_last = (count * mean + end[:, None]) / (count + 1) if self.words_at_last else end[:, None]
        return torch.where(last[:, :, None], at_last, mean)
