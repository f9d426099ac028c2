"""Prefixes under segmental alignment, each with its exact weight at every source cell and size of segment."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.heads.base import Decoder
from permalign.heads.log_recurrence import log_recurrence
from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.structures.restriction import LOG_ZERO
from permalign.text.codec import END_ID

if TYPE_CHECKING:
    from permalign.heads.swan.head import SwanHead


class SwanDecoder(Decoder):
    """Rows carry ``grown[t,k]``, the log-probability of their prefix with its last k words in the segment of cell t.

    Before the next word segments may stop. A cell is entered from the one before, which stops after some words of the
    prefix or with none at all:

        entered[t] = log( sum_k exp(grown[t-1,k] + stop[t-1,k]) + exp(entered[t-1] + stop[t-1,0]) )

    and what enters behind the last cell has written the whole output: the score of the end. All other words are written
    from ``ready[t,k]``, which is ``entered[t]`` for k = 0 and ``grown[t,k]`` for k < L.
    """

    def __init__(
        self, head: "SwanHead", cells: Float[Tensor, "batch n both"], lengths: Int[Tensor, " batch"]
    ) -> None:
        batch, count, both = cells.shape
        self._head, self._cells, self._lengths = head, cells, lengths.long()
        self._sentences = torch.arange(batch, device=cells.device)
        self._begun = cells.new_zeros(batch)  # what enters the first cell
        steps, self._carried = head.context.begin(batch, cells.device)
        grown = cells.new_full((batch, count, head.max_segment_length), LOG_ZERO)
        nothing = cells.new_zeros((batch, count, head.max_segment_length - 1, both // 2))
        self._open(steps, grown, nothing, nothing)

    @torch.no_grad()
    def scores(self) -> Float[Tensor, "rows words"]:
        """The log-probability of every prefix followed by each word, summed over cells and sizes."""
        answer = (self._ready[..., None] + self._log_probs).flatten(1, 2).logsumexp(1)
        answer[:, END_ID] = self._finished
        return answer.masked_fill_(answer < LOG_ZERO / 2, -torch.inf)

    @torch.no_grad()
    def extend(self, rows: Int[Tensor, " new"], words: Int[Tensor, " new"]) -> None:
        """Write one word in each of the chosen rows."""
        head = self._head
        impossible = (words == END_ID)[:, None, None]
        grown = self._ready[rows] + self._log_probs[rows, :, :, words]
        grown = grown.clamp(min=LOG_ZERO).masked_fill(impossible, LOG_ZERO)
        gates = head.segment.from_words(head.context.embed(words))[:, None, None]
        before = (states[rows, :, :-1] for states in (self._states, self._memories))
        states, memories = head.segment(gates, *before)
        steps, self._carried = head.context.advance(tuple(state[rows] for state in self._carried), words)
        self._sentences = self._sentences[rows]
        self._begun = torch.full_like(self._begun[rows], LOG_ZERO)
        self._open(steps, grown, states, memories)

    def _open(
        self,
        steps: Float[Tensor, "rows hidden"],
        grown: Float[Tensor, "rows n sizes"],
        states: Float[Tensor, "rows n less hidden"],
        memories: Float[Tensor, "rows n less hidden"],
    ) -> None:
        """Get ready to write: stop segments, enter cells, and score all words from every cell and size."""
        head, count = self._head, grown.shape[1]
        first = head.segment.begin(self._cells[self._sentences], head.segment.from_steps(steps)[:, None])
        self._states = torch.cat([first[0][:, :, None], states], dim=2)  # (rows, cell, size, hidden)
        self._memories = torch.cat([first[1][:, :, None], memories], dim=2)
        self._log_probs: Tensor = head.softmax(head.dropout(self._states))  # (rows, cell, size, word)
        stop = self._log_probs[..., END_ID]
        # a segment of the greatest size stops by itself
        left = (grown + pad(stop[..., 1:], (0, 1))).logsumexp(-1)  # (rows, cell)
        sources = torch.cat([self._begun[:, None], left], dim=1)
        entered = log_recurrence(sources, pad(stop[..., 0], (1, 0)))  # (rows, cell + 1)
        lengths = self._lengths[self._sentences]
        self._finished = entered.gather(1, lengths[:, None]).squeeze(1)
        ready = torch.cat([entered[:, :-1, None], grown[..., :-1]], dim=2)
        self._ready = ready.masked_fill(~length_mask(lengths, count)[..., None], LOG_ZERO)
