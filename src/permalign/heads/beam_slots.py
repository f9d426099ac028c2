"""Rows of a beam, laid out by sentence."""

import torch
from torch import Tensor

from permalign.shapes import Int


def slots_of(sentences: Int[Tensor, " rows"], count: int) -> tuple[Int[Tensor, " rows"], int]:
    """Numbers the rows of every sentence from zero; and the most rows that a sentence has.

    >>> slots_of(torch.tensor([2, 0, 2, 2, 0]), count=3)
    (tensor([0, 0, 1, 2, 1]), 3)
    """
    together = sentences.argsort(stable=True)
    counts = sentences.bincount(minlength=count)
    first = counts.cumsum(0) - counts  # where each sentence begins
    slots = torch.empty_like(sentences)
    slots[together] = torch.arange(len(sentences), device=sentences.device) - first[sentences[together]]
    return slots, int(counts.max())
