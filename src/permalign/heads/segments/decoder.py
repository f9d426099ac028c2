"""Prefixes whose words come from segments, each with its exact weight at every source cell and size of segment."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.heads.base import Decoder
from permalign.heads.beam_slots import slots_of
from permalign.heads.log_recurrence import log_recurrence
from permalign.heads.softmax.additive import Exponentials, summed_over_words, too_small
from permalign.heads.softmax.segmental import SegmentalSoftmax
from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.structures.restriction import LOG_ZERO
from permalign.text.codec import END_ID


class SegmentsDecoder(Decoder):
    """Rows carry ``grown[t,k]``, the log-probability of their prefix with its last k words in the segment of cell t.

    Before the next word segments may stop. A cell is entered from the one before, which stops after some words of the
    prefix or with none at all:

        entered[t] = log( sum_k exp(grown[t-1,k] + stop[t-1,k]) + exp(entered[t-1] + stop[t-1,0]) )

    and what enters behind the last cell has written the whole output: the score of the end. All other words are written
    from ``entered[t]`` (k = 0) and ``grown[t,k]`` (k < L) with the log-probability ``A_tw + B_kw - log Z(t,k)``.

    Rows live in the slots of their sentence, ``(sentence, slot, k)``, so that all of them share its cells' ``A``, and
    the sum over cells is a product of matrices.
    """

    def __init__(
        self,
        word_scores: SegmentalSoftmax,
        cells: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
    ) -> None:
        batch, count, _ = cells.shape
        self._word_scores, self._lengths = word_scores, lengths.long()
        self._inside = length_mask(self._lengths, count)
        self._cell_words = Exponentials.of(word_scores.cell_logits(cells))
        self._sentences = torch.arange(batch, device=cells.device)
        self._slots, self._most = torch.zeros_like(self._sentences), 1
        state, carried = word_scores.context.begin(1, cells.device)
        self._begin = state[:, None], tuple(one[:, None] for one in carried)  # (1, 1, ...)
        # the states after the last k words, and what leads to the next, (rows, k, ...); all but k = 0 are unused yet
        every = (-1, word_scores.longest)
        self._steps = self._begin[0].expand(batch, every[1], -1)
        self._carried = tuple(one.expand(batch, every[1], *(-1,) * (one.dim() - 2)) for one in self._begin[1])
        self._begun = cells.new_zeros(batch)  # what enters the first cell
        self._open(cells.new_full((batch, count, word_scores.longest), LOG_ZERO))

    @torch.no_grad()
    def scores(self) -> Float[Tensor, "rows words"]:
        """The log-probability of every prefix followed by each word, summed over cells and sizes."""
        weights = self._ready + self._cell_words.top.transpose(1, 2)  # (sentence, slot and k, cell)
        top = weights.amax(-1, keepdim=True)
        mixed = (weights - top).exp() @ self._cell_words.parts  # (sentence, slot and k, word)
        lost = too_small(mixed) & self._word_scores.forbidden.isfinite()
        totals = mixed.log_().add_(top)
        if bool(lost.any()):
            sentence, slot, word = lost.nonzero(as_tuple=True)
            exact = self._ready[sentence, slot] + self._cell_words.logits[sentence, :, word]
            totals[lost] = exact.logsumexp(-1)
        totals += self._step_logits
        by_slot: Tensor = totals.unflatten(1, (self._most, -1)).logsumexp(2)
        answer = by_slot[self._sentences, self._slots]
        answer[:, END_ID] = self._finished
        return answer.masked_fill_(answer < LOG_ZERO / 2, -torch.inf)

    @torch.no_grad()
    def extend(self, rows: Int[Tensor, " new"], words: Int[Tensor, " new"]) -> None:
        """Write one word in each of the chosen rows."""
        sentences, slots = self._sentences[rows], self._slots[rows]
        ready = self._ready.unflatten(1, (self._most, -1))[sentences, slots]  # (rows, k, cell)
        step_logits = self._step_logits.unflatten(1, (self._most, -1))[sentences, slots, :, words]
        grown = ready + self._cell_words.logits[sentences, :, words][:, None] + step_logits[..., None]
        impossible = (words == END_ID)[:, None, None]
        grown = grown.clamp(min=LOG_ZERO).masked_fill(impossible, LOG_ZERO).transpose(1, 2)
        self._write(rows, words)
        self._sentences = sentences
        self._slots, self._most = slots_of(sentences, len(self._lengths))
        self._begun = torch.full_like(self._begun[rows], LOG_ZERO)
        self._open(grown)

    def _write(self, rows: Tensor, words: Tensor) -> None:
        """The states after the last k words: those after k - 1, and the new word; the whole output is all k's."""
        longest, context = self._word_scores.longest, self._word_scores.context
        count = len(rows)
        if self._word_scores.history == "output":
            state, after = context.advance(tuple(one[rows, 0] for one in self._carried), words)
            self._steps = state[:, None].expand(-1, longest, -1)
            self._carried = tuple(one[:, None] for one in after)
            return
        shorter = tuple(one[rows, : longest - 1].flatten(0, 1) for one in self._carried)
        steps, carried = self._begin[0].expand(count, -1, -1), self._begin[1]
        carried = tuple(one.expand(count, *(-1,) * (one.dim() - 1)) for one in carried)
        if longest > 1:
            longer, after = context.advance(shorter, words.repeat_interleave(longest - 1))
            steps = torch.cat([steps, longer.unflatten(0, (count, -1))], dim=1)
            carried = tuple(
                torch.cat([one, two.unflatten(0, (count, -1))], dim=1)
                for one, two in zip(carried, after, strict=True)
            )
        self._steps, self._carried = steps, carried

    def _open(self, grown: Float[Tensor, "rows n sizes"]) -> None:
        """Get ready to write: stop segments, enter cells, and weigh every cell and size."""
        logits = self._word_scores.step_logits(self._steps)  # (rows, k, word)
        slotted = logits.new_zeros(len(self._lengths), self._most, *logits.shape[1:])
        slotted[self._sentences, self._slots] = logits
        self._step_logits = slotted.flatten(1, 2)
        normaliser = summed_over_words(self._cell_words, Exponentials.of(self._step_logits))
        stop = self._cell_words.logits[..., END_ID, None] + self._step_logits[:, None, :, END_ID]
        stop, normaliser = (self._of_rows(one) for one in (stop - normaliser, normaliser))  # (rows, n, k)
        # a segment of the greatest size stops by itself
        left = (grown + pad(stop[..., 1:], (0, 1))).logsumexp(-1)  # (rows, n)
        sources = torch.cat([self._begun[:, None], left], dim=1)
        entered = log_recurrence(sources, pad(stop[..., 0], (1, 0)))  # (rows, n + 1)
        lengths = self._lengths[self._sentences]
        self._finished = entered.gather(1, lengths[:, None]).squeeze(1)
        ready = torch.cat([entered[:, :-1, None], grown[..., :-1]], dim=2) - normaliser
        ready = torch.where(self._inside[self._sentences][..., None], ready, LOG_ZERO)
        by_slot = ready.new_full((len(self._lengths), self._most, *ready.shape[1:]), LOG_ZERO)
        by_slot[self._sentences, self._slots] = ready
        self._ready = by_slot.transpose(2, 3).flatten(1, 2)  # (sentence, slot and k, cell)

    def _of_rows(self, table: Float[Tensor, "sentence n both"]) -> Float[Tensor, "rows n sizes"]:
        """What belongs to each row, from a table by sentence, cell, and slot and k."""
        by_slot: Tensor = table.unflatten(2, (self._most, -1)).transpose(1, 2)
        return by_slot[self._sentences, self._slots]
