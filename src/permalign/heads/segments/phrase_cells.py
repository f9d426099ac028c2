"""Cells of phrases: adjacent source tokens that write one segment together."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one
from permalign.shapes import Float


class PhraseCells(nn.Module):
    """A cell for every phrase of 2 to s adjacent tokens, and a score for being a phrase.

    Each phrase length has a convolution of its own. Phrases are packed by length and then by first token, like the
    leaves of `permalign.SynchronousPermutation`. O(n s^2 cell_size^2).

    Args:
        cell_size: the size of the cells, of tokens and of phrases alike.
        max_phrase_length: s, the most tokens of a phrase, at least 2.

    >>> cells, scores = PhraseCells(cell_size=4, max_phrase_length=3)(torch.randn(1, 5, 4))
    >>> cells.shape, scores.shape  # four phrases of two tokens, three of three
    (torch.Size([1, 7, 4]), torch.Size([1, 7]))
    """

    def __init__(self, cell_size: int, max_phrase_length: int) -> None:
        super().__init__()
        require_at_least_one(cell_size=cell_size, max_phrase_length=max_phrase_length)
        self.reading = nn.ModuleList(
            nn.Conv1d(cell_size, cell_size, length) for length in range(2, max_phrase_length + 1)
        )
        self.weighing = nn.Linear(cell_size, 1)

    def forward(
        self, cells: Float[Tensor, "batch n cell_size"]
    ) -> tuple[Float[Tensor, "batch phrases cell_size"], Float[Tensor, "batch phrases"]]:
        """Return the cells and the scores of all phrases, from the cells of tokens."""
        channels_first = cells.transpose(1, 2)
        convolutions = list(self.reading)[: max(0, cells.shape[1] - 1)]  # no phrase exceeds the sentence
        by_length = [convolution(channels_first) for convolution in convolutions]
        none = cells.new_zeros(*channels_first.shape[:2], 0)
        phrases = torch.cat([none, *by_length], dim=2).transpose(1, 2).tanh()
        scores: Tensor = self.weighing(phrases).squeeze(2)
        return phrases, scores
