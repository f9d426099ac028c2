"""The rows of a beam, arranged by sentence."""

from dataclasses import dataclass

import torch
from torch import Tensor

from permalign.shapes import Float, Int


@dataclass(frozen=True)
class BeamSlots:
    """Arranges rows by sentence, so that all rows of a sentence share what was computed for its source.

    A beam search keeps the rows of a sentence side by side, and as many for each sentence. Then a table by sentence and
    slot has the rows in their order, and nothing has to be moved.

    Attributes:
        sentences: the sentence of each row.
        slots: the rank of each row among those of its sentence, from 0.
        num_sentences: the number of sentences, each of which has at least one row.
        num_slots: the number of rows of the sentence that has most.
        in_order: whether row i is slot ``i % num_slots`` of sentence ``i // num_slots``, and there are no others.

    >>> slots, kept = BeamSlots.of(torch.tensor([2, 0, 2, 2, 0]), num_sentences=3)
    >>> slots.slots, slots.num_slots, kept
    (tensor([0, 0, 1, 2, 1]), 3, tensor([0, 2]))
    """

    sentences: Int[Tensor, " rows"]
    slots: Int[Tensor, " rows"]
    num_sentences: int
    num_slots: int
    in_order: bool

    @classmethod
    def one_each(cls, num_sentences: int, device: torch.device) -> "BeamSlots":
        """Arrange one row for each sentence, in the order of sentences."""
        sentences = torch.arange(num_sentences, device=device)
        return cls(sentences, torch.zeros_like(sentences), num_sentences, 1, True)

    @classmethod
    def of(
        cls, sentences: Int[Tensor, " rows"], num_sentences: int
    ) -> tuple["BeamSlots", Int[Tensor, " kept"] | None]:
        """Arrange rows given the sentence of each; sentences without rows are left out, and the others renumbered.

        Returns:
            The arrangement; and the sentences that are kept, None if these are all.
        """
        in_order = cls._in_order(sentences, num_sentences)
        if in_order is not None:
            return in_order, None
        counts = sentences.bincount(minlength=num_sentences)
        kept = None
        if not bool(counts.all()):
            kept = counts.nonzero().squeeze(1)
            sentences = ((counts > 0).cumsum(0) - 1)[sentences]
            counts = counts[kept]
            in_order = cls._in_order(sentences, len(kept))
            if in_order is not None:
                return in_order, kept
        by_sentence = sentences.argsort(stable=True)
        first = counts.cumsum(0) - counts  # where each sentence begins among the sorted rows
        slots = torch.empty_like(sentences)
        rank = torch.arange(len(sentences), device=sentences.device)
        slots[by_sentence] = rank - first[sentences[by_sentence]]
        return cls(sentences, slots, len(counts), int(counts.max()), False), kept

    @classmethod
    def _in_order(cls, sentences: Tensor, num_sentences: int) -> "BeamSlots | None":
        """Arrange rows if they are in order, and as many for each sentence; else return None."""
        num_slots, others = divmod(len(sentences), num_sentences)
        if others or not num_slots:
            return None
        rank = torch.arange(len(sentences), device=sentences.device)
        if not torch.equal(sentences, rank // num_slots):
            return None
        return cls(sentences, rank % num_slots, num_sentences, num_slots, True)

    def scatter(self, rows: Float[Tensor, "rows ..."], fill: float) -> Float[Tensor, "sentences slots ..."]:
        """Arrange values of rows by sentence and slot; slots without a row hold ``fill``."""
        if self.in_order:
            in_place: Tensor = rows.view(self.num_sentences, self.num_slots, *rows.shape[1:])
            return in_place
        table = rows.new_full((self.num_sentences, self.num_slots, *rows.shape[1:]), fill)
        table[self.sentences, self.slots] = rows
        return table

    def gather(self, table: Float[Tensor, "sentences slots ..."]) -> Float[Tensor, "rows ..."]:
        """Return the values of all rows from a table by sentence and slot."""
        return table.flatten(0, 1) if self.in_order else table[self.sentences, self.slots]

    def pick(
        self, table: Float[Tensor, "sentences slots ..."], rows: Int[Tensor, " new"]
    ) -> Float[Tensor, "new ..."]:
        """Return the values of some rows from a table by sentence and slot."""
        return table.flatten(0, 1)[rows] if self.in_order else table[self.sentences[rows], self.slots[rows]]
