"""Prefixes under monotone alignment, each with its exact weight at every source cell."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from permalign.heads.base import Decoder
from permalign.heads.beam_slots import BeamSlots
from permalign.heads.copying import in_vocabulary
from permalign.heads.log_recurrence import log_recurrence
from permalign.heads.softmax.additive import Exponentials, additive_log_normaliser, log_mixture
from permalign.shapes import Bool, Float, Int
from permalign.structures.log_space import LOG_ZERO
from permalign.text.codec import END_ID

if TYPE_CHECKING:
    from permalign.heads.ssnt.head import SsntHead


class SsntDecoder(Decoder):
    """Rows carry ``arrived[i]``, the log-probability of their prefix with its last token written at cell i.

    Before the next token the model may move on, ``reached[i] = log(exp arrived[i] + exp(reached[i-1] + move[i-1]))``,
    and then writes token w with log-probability ``reached[i] + emit[i] + A_iw + B_w - log Z_i``. Summed over cells this
    is the score of the extended prefix; before summing, it is what that prefix arrives with.

    Rows are kept in `BeamSlots`, so that all rows of a sentence share what was computed for its cells, and the sum over
    cells is a matrix product. With a copy mechanism there are tokens beyond the vocabulary, the unknown words of a
    sentence.
    """

    def __init__(
        self,
        head: "SsntHead",
        cells: Float[Tensor, "batch cells cell_size"],
        last: Bool[Tensor, "batch cells"],
    ) -> None:
        batch = cells.shape[0]
        self._head, self._cells, self._last = head, cells, last
        self._copies = head.copies
        self._cell_tokens = Exponentials.of(head.word_scores.cell_logits(cells))
        self._emit_cells = head.emit_cells(cells)
        self._attended_source = head.attention.project(cells, last.int().argmax(1) + 1)
        self._slots = BeamSlots.one_each(batch, cells.device)
        steps, self._cache = head.context.begin(batch, cells.device)
        arrived = torch.full_like(last, LOG_ZERO, dtype=cells.dtype)
        arrived[:, 0] = 0.0
        self._prepare(steps, arrived)

    @torch.no_grad()
    def scores(self) -> Float[Tensor, "rows vocab"]:
        """Return the log-probability of every prefix followed by each token, summed over the cells that emit it."""
        totals = log_mixture(self._ready, self._cell_tokens, self._head.word_scores.allowed)
        totals += self._step_logits  # (sentence, slot, vocab)
        totals[..., END_ID] = self._ready_to_end + self._end_logits
        if self._copies is not None:
            totals = self._copies.add_to(totals, self._ready_to_copy)
        scores = self._slots.gather(totals)
        return scores.masked_fill_(scores < LOG_ZERO / 2, -torch.inf)

    @torch.no_grad()
    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        """Write one token in each of the chosen rows."""
        sentences, slots = self._slots.sentences[rows], self._slots.slots[rows]
        known = in_vocabulary(tokens, self._head.vocab_size)
        arrived = self._ready[sentences, slots] + self._cell_tokens.logits[sentences, :, known]
        arrived += self._step_logits[sentences, slots, known][:, None]
        if self._copies is not None:
            arrived = self._copies.add_token(
                arrived, self._ready_to_copy[sentences, slots], sentences, tokens, self._head.vocab_size
            )
        cache = tuple(state[rows] for state in self._cache)
        steps, self._cache = self._head.context.advance(cache, tokens)
        self._slots = BeamSlots.of(sentences, self._cells.shape[0])
        self._prepare(steps, arrived.clamp_(min=LOG_ZERO))

    def _prepare(
        self, steps: Float[Tensor, "rows hidden_size"], arrived: Float[Tensor, "rows cells"]
    ) -> None:
        """Compute ``ready[i] = reached[i] + emit[i] - log Z_i``, and the logits ``B_w``, for all rows.

        ``ready_to_end`` is ``ready`` at the end cell, which may itself write nothing but END.

        With a copy mechanism, ``ready`` includes the log-probability of writing from the vocabulary, and
        ``ready_to_copy[i]`` is ``reached[i] + emit[i]`` and that of copying.
        """
        steps, arrived = self._slots.scatter(steps, 0.0), self._slots.scatter(arrived, LOG_ZERO)
        head, last = self._head, self._last[:, None]  # (sentence, 1, cell)
        steps = head.attention(steps, self._attended_source)  # (sentence, slot, hidden_size)
        odds = head.emit_logits(self._emit_cells, head.emit_steps(steps)).transpose(1, 2)
        move = torch.where(last, LOG_ZERO, logsigmoid(-odds))  # (sentence, slot, cell)
        reached = log_recurrence(arrived, pad(move[..., :-1], (1, 0)))
        self._step_logits = head.word_scores.step_logits(steps)
        self._end_logits = head.word_scores.end_logits(self._cells, steps, self._last)
        without_end = additive_log_normaliser(self._cell_tokens, Exponentials.of(self._step_logits))
        log_normaliser = head.word_scores.add_end(without_end, self._end_logits, self._last).transpose(1, 2)
        writing = reached + torch.where(last, 0.0, logsigmoid(odds))
        self._ready = writing - log_normaliser
        self._ready_to_end = self._ready.masked_fill(~last, 0.0).sum(-1)
        if not head.word_scores.words_at_last:
            self._ready = self._ready.masked_fill(last, LOG_ZERO)
        if head.copy_gate is not None and self._copies is not None:
            keep, copy = head.copy_gate(self._cells, self._copies.shares(self._cells), steps)
            self._ready += keep.transpose(1, 2)
            self._ready_to_copy = writing + copy.transpose(1, 2)
