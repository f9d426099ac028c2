"""Prefixes under monotone alignment, each with its exact weight at every source cell."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from permalign import kernels
from permalign.heads.base import Decoder
from permalign.heads.beam_slots import BeamSlots
from permalign.heads.copying import CopySource, in_vocabulary
from permalign.heads.softmax.additive import Exponentials, additive_log_normaliser, log_mixture
from permalign.heads.source_attention import AttendedSource
from permalign.shapes import Bool, Float, Int
from permalign.structures.log_space import LOG_ZERO
from permalign.text.codec import END_ID

if TYPE_CHECKING:
    from permalign.heads.ssnt.head import SsntHead


@dataclass(frozen=True)
class _Source:
    """What was computed for the cells of every sentence that has rows.

    Attributes:
        cells: ``(sentence, cell, cell_size)``.
        last: ``(sentence, cell)``, true at the last cell of every sentence.
        lengths: ``(sentence,)``, the number of cells.
        tokens: the logits ``A`` of all cells.
        end: ``(sentence,)``, what the last cell contributes to the logit of END.
        emit: ``(sentence, cell, hidden_size)``, what cells contribute to the decision to emit a token.
        attended: the cells as attention reads them.
        copies: what the cells copy; None without a copy mechanism.
    """

    cells: Tensor
    last: Tensor
    lengths: Tensor
    tokens: Exponentials
    end: Tensor
    emit: Tensor
    attended: AttendedSource | None
    copies: CopySource | None

    @classmethod
    def of(cls, head: "SsntHead", cells: Tensor, last: Tensor) -> "_Source":
        """Compute it from the cells."""
        scores, lengths = head.word_scores, last.int().argmax(1) + 1
        return cls(
            cells,
            last,
            lengths,
            Exponentials.of(scores.cell_logits(cells)),
            cells[last] @ scores.of_cells.weight[END_ID] + scores.of_cells.bias[END_ID],
            head.emit_cells(cells),
            head.context.project(cells, lengths),
            head.copies,
        )

    def select(self, kept: Int[Tensor, " kept"]) -> "_Source":
        """Return some of the sentences."""
        return _Source(
            self.cells[kept],
            self.last[kept],
            self.lengths[kept],
            self.tokens.select(kept),
            self.end[kept],
            self.emit[kept],
            None if self.attended is None else self.attended.select(kept),
            None if self.copies is None else self.copies.select(kept),
        )


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
        self._head, self._source = head, _Source.of(head, cells, last)
        self._allowed = head.word_scores.allowed
        self._slots = BeamSlots.one_each(batch, cells.device)
        steps, self._cache = head.context.begin(batch, cells.device, self._source.attended)
        arrived = torch.full_like(last, LOG_ZERO, dtype=cells.dtype)
        arrived[:, 0] = 0.0
        self._prepare(steps, arrived)

    @torch.no_grad()
    def scores(self) -> Float[Tensor, "rows vocab"]:
        """Return the log-probability of every prefix followed by each token, summed over the cells that emit it."""
        source = self._source
        totals = log_mixture(self._ready, source.tokens, self._allowed)
        totals += self._step_logits  # (sentence, slot, vocab)
        totals[..., END_ID] = self._ready_to_end + self._end_logits
        if source.copies is not None:
            totals = source.copies.add_to(totals, self._ready_to_copy)
        scores = self._slots.gather(totals)
        return scores.masked_fill_(scores < LOG_ZERO / 2, -torch.inf)

    @torch.no_grad()
    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        """Write one token in each of the chosen rows."""
        slots, source, vocab_size = self._slots, self._source, self._head.vocab_size
        sentences = slots.sentences[rows]
        known = tokens if source.copies is None else in_vocabulary(tokens, vocab_size)
        arrived = slots.pick(self._ready, rows) + source.tokens.logits[sentences, :, known]
        arrived += slots.pick(self._step_logits, rows).gather(1, known[:, None])
        if source.copies is not None:
            to_copy = slots.pick(self._ready_to_copy, rows)
            arrived = source.copies.add_token(arrived, to_copy, sentences, tokens, vocab_size)
        attended = None if source.attended is None else source.attended.select(sentences)
        steps, self._cache = self._head.context.advance(self._cache, rows, tokens, attended)
        self._slots, kept = BeamSlots.of(sentences, slots.num_sentences)
        if kept is not None:
            self._source = source.select(kept)
        self._prepare(steps, arrived.clamp_(min=LOG_ZERO))

    def _prepare(
        self, steps: Float[Tensor, "rows hidden_size"], arrived: Float[Tensor, "rows cells"]
    ) -> None:
        """Compute ``ready[i] = reached[i] + emit[i] - log Z_i``, and the logits ``B_w``, for all rows.

        ``ready_to_end`` is ``ready`` at the end cell, which may itself write nothing but END.

        With a copy mechanism, ``ready`` includes the log-probability of writing from the vocabulary, and
        ``ready_to_copy[i]`` is ``reached[i] + emit[i]`` and that of copying.
        """
        steps = self._slots.scatter(steps, 0.0)  # (sentence, slot, hidden_size)
        arrived = self._slots.scatter(arrived, LOG_ZERO)
        head, source = self._head, self._source
        writing = kernels.writing_weights(  # (sentence, slot, cell)
            source.emit,
            head.emit_steps(steps),
            head.emit.weight[0],
            head.emit.bias,
            arrived,
            source.lengths,
        )
        self._step_logits = head.word_scores.step_logits(steps)
        self._end_logits = source.end[:, None] + self._step_logits[..., END_ID]
        # Z_i: all tokens but END, and END at the last cell
        log_normaliser = additive_log_normaliser(Exponentials.of(self._step_logits), source.tokens)
        end, words_at_last = self._end_logits[..., None], head.word_scores.words_at_last
        at_last = torch.logaddexp(log_normaliser, end) if words_at_last else end
        last = source.last[:, None]  # (sentence, 1, cell)
        self._ready = writing - torch.where(last, at_last, log_normaliser)
        self._ready_to_end = self._ready.masked_fill(~last, 0.0).sum(-1)
        if not words_at_last:
            self._ready = self._ready.masked_fill(last, LOG_ZERO)
        if head.copy_gate is not None and source.copies is not None:
            keep, copy = head.copy_gate(source.cells, source.copies.shares(source.cells), steps)
            self._ready += keep.transpose(1, 2)
            self._ready_to_copy = writing + copy.transpose(1, 2)
