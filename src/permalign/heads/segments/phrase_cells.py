"""Cells of phrases: neighbouring source words read together."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one
from permalign.shapes import Float


class PhraseCells(nn.Module):
    """A cell for every phrase of 2 to s neighbouring words, and how much it weighs to be one.

    Each width has a convolution of its own; phrases are packed by width and then by first word, as leaves are in
    `permalign.SynchronousPermutation`. O(n s^2 width^2).

    Args:
        width: of the cells of words, and of those of phrases.
        longest: the most words of a phrase, s, at least 2.

    >>> cells, scores = PhraseCells(width=4, longest=3)(torch.randn(1, 5, 4))
    >>> cells.shape, scores.shape  # four phrases of two words, three of three
    (torch.Size([1, 7, 4]), torch.Size([1, 7]))
    """

    def __init__(self, width: int, longest: int) -> None:
        super().__init__()
        require_at_least_one(width=width, longest=longest)
        self.reading = nn.ModuleList(nn.Conv1d(width, width, words) for words in range(2, longest + 1))
        self.weighing = nn.Linear(width, 1)

    def forward(
        self, cells: Float[Tensor, "batch n width"]
    ) -> tuple[Float[Tensor, "batch phrases width"], Float[Tensor, "batch phrases"]]:
        """Cells and scores, from the cells of words."""
        by_width = cells.transpose(1, 2)
        there = list(self.reading)[: max(0, cells.shape[1] - 1)]  # no phrase is longer than the sentence
        found = [read(by_width) for read in there]
        phrases = torch.cat([cells.new_zeros(*by_width.shape[:2], 0), *found], dim=2).transpose(1, 2).tanh()
        scores: Tensor = self.weighing(phrases).squeeze(2)
        return phrases, scores
