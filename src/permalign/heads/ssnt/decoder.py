"""Prefixes under monotone alignment, each with its exact weight at every source cell."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from permalign.heads.base import Decoder
from permalign.heads.beam_slots import slots_of
from permalign.heads.log_recurrence import log_recurrence
from permalign.heads.softmax.additive import Exponentials, summed_over_words, too_small
from permalign.heads.softmax.aligned import with_end_at_last
from permalign.shapes import Bool, Float, Int
from permalign.structures.restriction import LOG_ZERO
from permalign.text.codec import END_ID

if TYPE_CHECKING:
    from permalign.heads.ssnt.head import SsntHead


class SsntDecoder(Decoder):
    """Rows carry ``arrived[i]``, the log-probability of their prefix with its last word written at cell i.

    Before the next word the model may move on, ``reached[i] = log(exp arrived[i] + exp(reached[i-1] + move[i-1]))``,
    and then writes word w with the log-probability ``reached[i] + emit[i] + A_iw + B_w - log Z_i``: summed over cells
    that is the score of the longer prefix, and unsummed what it arrives with.

    Rows live in the slots of their sentence, ``(sentence, slot)``, so that all of them share what was computed of
    its cells, and the sum over cells is a product of matrices.
    """

    def __init__(
        self,
        head: "SsntHead",
        cells: Float[Tensor, "batch cells width"],
        last: Bool[Tensor, "batch cells"],
    ) -> None:
        batch = cells.shape[0]
        self._head, self._cells, self._last = head, cells, last
        self._cell_words = Exponentials.of(head.word_scores.cell_logits(cells))
        self._emit_cells = head.emit_cells(cells)
        self._sentences = torch.arange(batch, device=cells.device)
        self._slots, self._most = torch.zeros_like(self._sentences), 1
        steps, self._carried = head.context.begin(batch, cells.device)
        arrived = torch.full_like(last, LOG_ZERO, dtype=cells.dtype)
        arrived[:, 0] = 0.0
        self._open(steps, arrived)

    @torch.no_grad()
    def scores(self) -> Float[Tensor, "rows words"]:
        """The log-probability of every prefix followed by each word, summed over the cells that could emit it."""
        weights = self._ready + self._cell_words.top.transpose(1, 2)  # (sentence, slot, cell)
        top = weights.amax(-1, keepdim=True)
        mixed = (weights - top).exp() @ self._cell_words.parts  # (sentence, slot, word)
        lost = too_small(mixed) & self._head.word_scores.forbidden.isfinite()
        totals = mixed.log_().add_(top)
        if bool(lost.any()):
            sentence, slot, word = lost.nonzero(as_tuple=True)
            totals[lost] = (
                self._ready[sentence, slot] + self._cell_words.logits[sentence, :, word]
            ).logsumexp(-1)
        totals += self._step_logits
        ready_to_end = self._ready.masked_fill(~self._last[:, None], 0.0).sum(-1)
        totals[..., END_ID] = ready_to_end + self._end_logits
        answer = totals[self._sentences, self._slots]
        return answer.masked_fill_(answer < LOG_ZERO / 2, -torch.inf)

    @torch.no_grad()
    def extend(self, rows: Int[Tensor, " new"], words: Int[Tensor, " new"]) -> None:
        """Write one word in each of the chosen rows."""
        sentences, slots = self._sentences[rows], self._slots[rows]
        arrived = self._ready[sentences, slots] + self._cell_words.logits[sentences, :, words]
        arrived += self._step_logits[sentences, slots, words][:, None]
        carried = tuple(state[rows] for state in self._carried)
        steps, self._carried = self._head.context.advance(carried, words)
        self._sentences = sentences
        self._slots, self._most = slots_of(sentences, self._cells.shape[0])
        self._open(steps, arrived.clamp_(min=LOG_ZERO))

    def _open(self, steps: Float[Tensor, "rows hidden"], arrived: Float[Tensor, "rows cells"]) -> None:
        """Get ready to write: ``ready[i] = reached[i] + emit[i] - log Z_i``, and the logits ``B_w`` of all rows."""
        steps, arrived = self._in_slots(steps, 0.0), self._in_slots(arrived, LOG_ZERO)
        head, last = self._head, self._last[:, None]  # (sentence, 1, cell)
        odds = head.emit_logits(self._emit_cells, head.emit_steps(steps)).transpose(1, 2)
        move = torch.where(last, LOG_ZERO, logsigmoid(-odds))  # (sentence, slot, cell)
        reached = log_recurrence(arrived, pad(move[..., :-1], (1, 0)))
        self._step_logits = head.word_scores.step_logits(steps)
        self._end_logits = head.word_scores.end_logits(self._cells, steps, self._last)
        ordinary = summed_over_words(self._cell_words, Exponentials.of(self._step_logits))
        log_normaliser = with_end_at_last(ordinary, self._end_logits, self._last).transpose(1, 2)
        self._ready = reached + torch.where(last, 0.0, logsigmoid(odds)) - log_normaliser

    def _in_slots(self, rows: Tensor, empty: float) -> Tensor:
        """``(rows, width)`` as ``(sentence, slot, width)``."""
        slots = rows.new_full((self._cells.shape[0], self._most, rows.shape[-1]), empty)
        slots[self._sentences, self._slots] = rows
        return slots
