"""Words at every pair of a source cell and an output step, where the end belongs to the last cell alone."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.heads.softmax.projected import projected_log_normaliser
from permalign.shapes import Bool, Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS


class AlignedSoftmax(nn.Module):
    """``p(w | i, j) = softmax_w(W [h_i ; s_j] + b)`` in two projections, one for cells and one for steps.

    Padding and begin are never written, the end only at a sentence's last cell. So `cell_logits` leave all three out
    (a bias of -inf), and the end, one number for each step, is added where the last cell is. The logit of a given word
    is a product with that word's own weights and the mean logit one with the mean weights: only the normaliser
    touches all words of every cell and step.

    Args:
        cell_width: of ``h_i``.
        step_width: of ``s_j``.
        words: size of the vocabulary, with its special words.
    """

    forbidden: Tensor

    def __init__(self, cell_width: int, step_width: int, words: int) -> None:
        super().__init__()
        if words <= len(SPECIALS):
            raise ValueError(
                f"words is {words}, but must be at least {len(SPECIALS) + 1}: the vocabulary's size, counting the "
                f"special words {' '.join(SPECIALS)}."
            )
        self.of_cells = nn.Linear(cell_width, words)
        self.of_steps = nn.Linear(step_width, words, bias=False)
        forbidden = torch.zeros(words)
        forbidden[[PADDING_ID, BEGIN_ID, END_ID]] = -torch.inf
        self.register_buffer("forbidden", forbidden, persistent=False)

    def cell_logits(self, cells: Float[Tensor, "batch cells width"]) -> Float[Tensor, "batch cells words"]:
        """What each cell adds to the logits of all words, the bias included; -inf for the end too."""
        return functional.linear(cells, self.of_cells.weight, self.of_cells.bias + self.forbidden)

    def step_logits(self, steps: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows words"]:
        """What each step adds to the logits of all words."""
        logits: Tensor = self.of_steps(steps)
        return logits

    def end_logits(
        self,
        cells: Float[Tensor, "batch cells width"],
        steps: Float[Tensor, "batch steps step_width"],
        last: Bool[Tensor, "batch cells"],
    ) -> Float[Tensor, "batch steps"]:
        """The logit of the end at every step, at the last cell."""
        cell = cells[last] @ self.of_cells.weight[END_ID] + self.of_cells.bias[END_ID]  # (batch,)
        return cell[:, None] + steps @ self.of_steps.weight[END_ID]

    def log_probs(
        self,
        cells: Float[Tensor, "batch cells width"],
        steps: Float[Tensor, "batch steps step_width"],
        last: Bool[Tensor, "batch cells"],
        wanted: Int[Tensor, "batch steps"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "batch cells steps"]:
        """The log-probability of each step's word at every cell, mixed with the mean over words when smoothing.

        Args:
            cells: ``h_i``.
            steps: ``s_j``.
            last: true at the last cell of every sentence, and only there.
            wanted: the word of every step.
            smoothing: the share of the mean over all words that can be written at the cell.
        """
        bias = self.of_cells.bias + self.forbidden
        ordinary = projected_log_normaliser(cells, steps, self.of_cells.weight, self.of_steps.weight, bias)
        # the end's logit besides those of the words wanted
        logits = self._logits_of(cells, steps, torch.stack([wanted, torch.full_like(wanted, END_ID)]))
        end = logits[1][last]  # (batch, steps)
        mixed = logits[0].masked_fill((wanted == END_ID)[:, None] & ~last[:, :, None], -torch.inf)
        if smoothing:
            mixed = (1 - smoothing) * mixed + smoothing * self._mean_logits(cells, steps, end, last)
        return mixed - with_end_at_last(ordinary, end, last)

    def _logits_of(self, cells: Tensor, steps: Tensor, words: Tensor) -> Tensor:
        """Logits ``(..., batch, cells, steps)`` of given words, from their own rows of weights."""
        by_cell = functional.embedding(words, self.of_cells.weight)  # (..., batch, steps, width)
        by_step = functional.embedding(words, self.of_steps.weight)
        of_steps = (by_step * steps).sum(-1) + self.of_cells.bias[words]
        return cells @ by_cell.transpose(-1, -2) + of_steps[..., None, :]

    def _mean_logits(self, cells: Tensor, steps: Tensor, end: Tensor, last: Tensor) -> Tensor:
        """Mean logits ``(batch, cells, steps)`` of what can be written: at the last cell one word more, the end."""
        ordinary = self.forbidden.isfinite().to(cells)
        count = ordinary.sum()
        share = ordinary / count
        of_cells = cells @ (share @ self.of_cells.weight) + share @ self.of_cells.bias
        of_steps = steps @ (share @ self.of_steps.weight)
        mean = of_cells[:, :, None] + of_steps[:, None]
        return torch.where(last[:, :, None], (count * mean + end[:, None]) / (count + 1), mean)


def with_end_at_last(
    log_normaliser: Float[Tensor, "batch cells steps"],
    end_logits: Float[Tensor, "batch steps"],
    last: Bool[Tensor, "batch cells"],
) -> Float[Tensor, "batch cells steps"]:
    """The normaliser over ordinary words, with the end among them where the last cell is."""
    return torch.where(last[:, :, None], torch.logaddexp(log_normaliser, end_logits[:, None]), log_normaliser)
