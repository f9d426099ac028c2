"""Prefixes under segmental alignment, each with its exact weight at every source cell and length of its segment."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.heads.base import Decoder
from permalign.heads.copying import mix
from permalign.heads.segmental_head import enter_cells
from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.structures.log_space import LOG_ZERO
from permalign.text.codec import END_ID

if TYPE_CHECKING:
    from permalign.heads.swan.head import SwanHead


class SwanDecoder(Decoder):
    """Rows carry ``grown[t,k]``, the log-probability of their prefix with its last k tokens in the segment of cell t.

    Before the next token, segments may stop and later cells may be entered; see `segmental_head.enter_cells`. What
    enters one past the last cell has written the whole output, so it is the score of END. All other tokens are written
    from ``ready[t,k]``, which is ``entered[t]`` for k = 0 and ``grown[t,k]`` for 0 < k < L.
    """

    def __init__(
        self, head: "SwanHead", cells: Float[Tensor, "batch n both"], lengths: Int[Tensor, " batch"]
    ) -> None:
        batch, num_cells, both = cells.shape
        self._head, self._cells, self._lengths = head, cells, lengths.long()
        self._sentences = torch.arange(batch, device=cells.device)
        self._first = cells.new_zeros(batch)  # what enters the first cell
        steps, self._cache = head.context.begin(batch, cells.device)
        grown = cells.new_full((batch, num_cells, head.max_segment_length), LOG_ZERO)
        unused = cells.new_zeros((batch, num_cells, head.max_segment_length - 1, both // 2))
        self._prepare(steps, grown, unused, unused)

    @torch.no_grad()
    def scores(self) -> Float[Tensor, "rows vocab"]:
        """Return the log-probability of every prefix followed by each token, summed over cells and lengths."""
        scores = (self._ready[..., None] + self._log_probs).flatten(1, 2).logsumexp(1)
        scores[:, END_ID] = self._finished
        return scores.masked_fill_(scores < LOG_ZERO / 2, -torch.inf)

    @torch.no_grad()
    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        """Write one token in each of the chosen rows."""
        head = self._head
        impossible = (tokens == END_ID)[:, None, None]
        grown = self._ready[rows] + self._log_probs[rows, :, :, tokens]
        grown = grown.clamp(min=LOG_ZERO).masked_fill(impossible, LOG_ZERO)
        gates = head.segment.from_words(head.context.embed(tokens))[:, None, None]
        before = (states[rows, :, :-1] for states in (self._states, self._memories))
        states, memories = head.segment(gates, *before)
        steps, self._cache = head.context.advance(self._cache, rows, tokens)
        self._sentences = self._sentences[rows]
        self._first = torch.full_like(self._first[rows], LOG_ZERO)
        self._prepare(steps, grown, states, memories)

    def _prepare(
        self,
        steps: Float[Tensor, "rows hidden_size"],
        grown: Float[Tensor, "rows n sizes"],
        states: Float[Tensor, "rows n less hidden_size"],
        memories: Float[Tensor, "rows n less hidden_size"],
    ) -> None:
        """Let segments stop and cells be entered, and score all tokens from every cell and length of its segment."""
        head, num_cells = self._head, grown.shape[1]
        first = head.segment.begin(self._cells[self._sentences], head.segment.from_steps(steps)[:, None])
        self._states = torch.cat([first[0][:, :, None], states], dim=2)  # (rows, cell, size, hidden_size)
        self._memories = torch.cat([first[1][:, :, None], memories], dim=2)
        self._log_probs = self._token_log_probs(head.dropout(self._states))  # (rows, cell, size, vocab)
        lengths = self._lengths[self._sentences]
        ready, self._finished = enter_cells(grown, self._log_probs[..., END_ID], self._first, lengths)
        self._ready = ready.masked_fill(~length_mask(lengths, num_cells)[..., None], LOG_ZERO)

    def _token_log_probs(self, features: Float[Tensor, "rows n sizes hidden_size"]) -> Tensor:
        """Return the log-probabilities of all tokens, with a copy mechanism also of the sentence's unknown words."""
        head, copies = self._head, self._head.copies
        log_probs: Tensor = head.softmax(features)
        if head.copy_gate is None or copies is None:
            return log_probs
        shares = copies.shares(self._cells)[self._sentences][..., None]
        keep, copy = head.copy_gate(features, shares)
        size = max(head.vocab_size, copies.num_ids)
        copied = copies.over_vocabulary(self._cells.shape[1], size, features.dtype)[self._sentences]
        log_probs = pad(log_probs, (0, size - head.vocab_size), value=LOG_ZERO)
        return mix(keep[..., None], log_probs, copy[..., None], copied[:, :, None])
