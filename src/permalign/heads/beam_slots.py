"""The rows of a beam, arranged by sentence."""

from dataclasses import dataclass

import torch
from torch import Tensor

from permalign.shapes import Float, Int


@dataclass(frozen=True)
class BeamSlots:
    """Arranges rows by sentence, so that all rows of a sentence share what was computed for its source.

    Attributes:
        sentences: the sentence of each row.
        slots: the rank of each row among those of its sentence, from 0.
        num_sentences: the number of sentences, some of which may have no rows.
        num_slots: the number of rows of the sentence that has most.

    >>> slots = BeamSlots.of(torch.tensor([2, 0, 2, 2, 0]), num_sentences=3)
    >>> slots.slots, slots.num_slots
    (tensor([0, 0, 1, 2, 1]), 3)
    """

    sentences: Int[Tensor, " rows"]
    slots: Int[Tensor, " rows"]
    num_sentences: int
    num_slots: int

    @classmethod
    def one_each(cls, num_sentences: int, device: torch.device) -> "BeamSlots":
        """Arrange one row for each sentence, in the order of sentences."""
        sentences = torch.arange(num_sentences, device=device)
        return cls(sentences, torch.zeros_like(sentences), num_sentences, 1)

    @classmethod
    def of(cls, sentences: Int[Tensor, " rows"], num_sentences: int) -> "BeamSlots":
        """Arrange rows given the sentence of each."""
        by_sentence = sentences.argsort(stable=True)
        counts = sentences.bincount(minlength=num_sentences)
        first = counts.cumsum(0) - counts  # where each sentence begins among the sorted rows
        slots = torch.empty_like(sentences)
        rank = torch.arange(len(sentences), device=sentences.device)
        slots[by_sentence] = rank - first[sentences[by_sentence]]
        return cls(sentences, slots, num_sentences, int(counts.max()))

    def scatter(self, rows: Float[Tensor, "rows ..."], fill: float) -> Float[Tensor, "sentences slots ..."]:
        """Arrange values of rows by sentence and slot; slots without a row hold ``fill``."""
        table = rows.new_full((self.num_sentences, self.num_slots, *rows.shape[1:]), fill)
        table[self.sentences, self.slots] = rows
        return table

    def gather(self, table: Float[Tensor, "sentences slots ..."]) -> Float[Tensor, "rows ..."]:
        """Return the values of all rows from a table by sentence and slot."""
        return table[self.sentences, self.slots]
