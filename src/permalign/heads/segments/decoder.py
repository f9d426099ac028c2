"""Prefixes made of segments, each with its exact weight at every source cell and length of its segment."""

import torch
from torch import Tensor

from permalign.heads.base import Decoder
from permalign.heads.beam_slots import BeamSlots
from permalign.heads.copying import CopySource, in_vocabulary
from permalign.heads.segmental_head import enter_cells
from permalign.heads.softmax.additive import Exponentials, additive_log_normaliser, log_mixture
from permalign.heads.softmax.segmental import SegmentalSoftmax
from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.structures.log_space import LOG_ZERO
from permalign.text.codec import END_ID


class SegmentsDecoder(Decoder):
    """Rows carry ``grown[t,k]``, the log-probability of their prefix with its last k tokens in the segment of cell t.

    Before the next token, segments may stop and later cells may be entered; see `segmental_head.enter_cells`. What
    enters one past the last cell has written the whole output, so it is the score of END. All other tokens are written
    from ``entered[t]`` (k = 0) and ``grown[t,k]`` (0 < k < L) with log-probability ``A_tw + B_kw - log Z(t,k)``.

    Rows are kept in `BeamSlots`, one for every state, so that all rows of a sentence share the ``A`` of its cells, and
    the sum over cells is a matrix product. There is one state for every k, or one for all k if the history is the whole
    output.
    """

    def __init__(
        self,
        softmax: SegmentalSoftmax,
        cells: Float[Tensor, "batch n cell_size"],
        lengths: Int[Tensor, " batch"],
        copies: CopySource | None = None,
    ) -> None:
        batch, num_cells, _ = cells.shape
        longest = softmax.max_segment_length
        self._softmax, self._lengths = softmax, lengths.long()
        self._cells, self._copies = cells, copies
        self._is_cell, self._allowed = length_mask(self._lengths, num_cells), softmax.allowed
        self._cell_tokens = Exponentials.of(softmax.cell_logits(cells))
        self._attended_source = softmax.context.project(cells, lengths)
        self._slots = BeamSlots.one_each(batch, cells.device)
        self._begin = softmax.context.begin(batch, cells.device, self._attended_source)  # (sentence, ...)
        # the states after the last k tokens, (rows, k, hidden_size), and their caches; only k = 0 is used at first. If
        # the history is the whole output, all k have the same state and the same cache, which are kept once
        self._num_states = 1 if softmax.history == "output" else longest
        state, self._cache = self._begin
        self._steps = state[:, None].expand(-1, self._num_states, -1)
        if softmax.history == "segment":
            self._cache = tuple(_repeat(tensor, longest) for tensor in self._cache)
        self._first = cells.new_zeros(batch)  # what enters the first cell
        self._prepare(cells.new_full((batch, num_cells, longest), LOG_ZERO))

    @torch.no_grad()
    def scores(self) -> Float[Tensor, "rows vocab"]:
        """Return the log-probability of every prefix followed by each token, summed over cells and lengths."""
        totals = log_mixture(self._ready, self._cell_tokens, self._allowed)
        totals += self._step_logits  # (sentence, slot and state, vocab)
        if self._copies is not None:
            totals = self._copies.add_to(totals, self._ready_to_copy)
        scores = self._slots.gather(self._split_slots(totals).logsumexp(2))
        scores[:, END_ID] = self._finished
        return scores.masked_fill_(scores < LOG_ZERO / 2, -torch.inf)

    @torch.no_grad()
    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        """Write one token in each of the chosen rows."""
        sentences, slots = self._slots.sentences[rows], self._slots.slots[rows]
        ready = self._ready_rows[rows].transpose(1, 2)  # (rows, k, cell)
        known = in_vocabulary(tokens, self._step_logits.shape[2])
        step_logits = self._split_slots(self._step_logits)[sentences, slots, :, known]
        grown = ready + self._cell_tokens.logits[sentences, :, known][:, None] + step_logits[..., None]
        if self._copies is not None:
            grown = self._add_copies(grown, rows, tokens)
        impossible = (tokens == END_ID)[:, None, None]
        grown = grown.clamp(min=LOG_ZERO).masked_fill(impossible, LOG_ZERO).transpose(1, 2)
        self._advance_context(rows, tokens)
        self._slots, kept = BeamSlots.of(sentences, len(self._lengths))
        if kept is not None:
            self._keep(kept)
        self._first = torch.full_like(self._first[rows], LOG_ZERO)
        self._prepare(grown)

    def _keep(self, kept: Int[Tensor, " kept"]) -> None:
        """Forget the sentences that have no rows any more."""
        self._lengths, self._cells, self._is_cell = (
            self._lengths[kept],
            self._cells[kept],
            self._is_cell[kept],
        )
        self._cell_tokens = self._cell_tokens.select(kept)
        if self._softmax.history == "segment":
            self._begin = self._begin[0][kept], tuple(tensor[kept] for tensor in self._begin[1])
        if self._attended_source is not None:
            self._attended_source = self._attended_source.select(kept)
        if self._copies is not None:
            self._copies = self._copies.select(kept)

    def _add_copies(
        self, grown: Float[Tensor, "rows k n"], rows: Tensor, tokens: Tensor
    ) -> Float[Tensor, "rows k n"]:
        """Add the probability of copying one token in each row."""
        assert self._copies is not None
        num_lengths, sentences = grown.shape[1], self._slots.sentences[rows]
        to_copy = self._rows_ready_to_copy[rows].transpose(1, 2)
        added = self._copies.add_token(
            grown.flatten(0, 1),
            to_copy.flatten(0, 1),
            sentences.repeat_interleave(num_lengths),
            tokens.repeat_interleave(num_lengths),
            self._step_logits.shape[2],
        )
        return added.view_as(grown)

    def _advance_context(self, rows: Tensor, tokens: Tensor) -> None:
        """Compute the states after the last k tokens: the one after k - 1 tokens reads the new token.

        If the history is the whole output, there is one state for all k.
        """
        longest, context, source = (
            self._softmax.max_segment_length,
            self._softmax.context,
            self._attended_source,
        )
        num_rows, sentences = len(rows), self._slots.sentences[rows]
        if self._softmax.history == "output":
            attended = None if source is None else source.select(sentences)
            state, self._cache = context.advance(self._cache, rows, tokens, attended)
            self._steps = state[:, None]
            return
        steps, cache = self._begin[0][sentences, None], tuple(t[sentences, None] for t in self._begin[1])
        if longest > 1:
            attended = None if source is None else source.select(sentences.repeat_interleave(longest - 1))
            shorter = tuple(tensor[:, : longest - 1].flatten(0, 1) for tensor in self._cache)
            shorter_rows = (
                rows[:, None] * (longest - 1) + torch.arange(longest - 1, device=rows.device)
            ).flatten()
            longer, after = context.advance(
                shorter, shorter_rows, tokens.repeat_interleave(longest - 1), attended
            )
            steps = torch.cat([steps, longer.unflatten(0, (num_rows, -1))], dim=1)
            cache = tuple(
                torch.cat([begin, tensor.unflatten(0, (num_rows, -1))], dim=1)
                for begin, tensor in zip(cache, after, strict=True)
            )
        self._steps, self._cache = steps, cache

    def _prepare(self, grown: Float[Tensor, "rows n sizes"]) -> None:
        """Let segments stop and cells be entered, and compute the weight of every cell and length of its segment."""
        steps = self._slots.scatter(self._steps, 0.0).flatten(1, 2)  # (sentence, slot and state, hidden_size)
        self._step_logits = self._softmax.step_logits(steps)
        normaliser = additive_log_normaliser(self._cell_tokens, Exponentials.of(self._step_logits))
        stop = self._cell_tokens.logits[..., END_ID, None] + self._step_logits[:, None, :, END_ID]
        stop, writing = stop - normaliser, -normaliser  # (sentence, n, slot and state)
        copying = None
        if self._softmax.copy_gate is not None and self._copies is not None:
            keep, copying = self._softmax.copy_gate(self._cells, self._copies.shares(self._cells), steps)
            stop, writing = stop + keep, writing + keep
        stop, writing = self._of_rows(stop).expand_as(grown), self._of_rows(writing)  # (rows, n, k)
        sentences = self._slots.sentences
        ready, self._finished = enter_cells(grown, stop, self._first, self._lengths[sentences])
        self._ready_rows, self._ready = self._at_cells(ready + writing)
        if copying is not None:
            self._rows_ready_to_copy, self._ready_to_copy = self._at_cells(ready + self._of_rows(copying))

    def _at_cells(
        self, ready: Float[Tensor, "rows n k"]
    ) -> tuple[Float[Tensor, "rows n k"], Float[Tensor, "sentence both n"]]:
        """Return the weights of cells, and the same with one row for every slot and state; what is no cell has none.

        With the second, `log_mixture` sums over the cells of a sentence for all slots and states at once. Lengths that
        have the same state are summed before.
        """
        is_cell = self._is_cell[self._slots.sentences][..., None]
        ready = torch.where(is_cell, ready, LOG_ZERO)
        by_state = ready if self._num_states > 1 else ready.logsumexp(-1, keepdim=True)
        return ready, self._slots.scatter(by_state, LOG_ZERO).transpose(2, 3).flatten(1, 2)

    def _split_slots(
        self, table: Float[Tensor, "sentence both rest"]
    ) -> Float[Tensor, "sentence slot k rest"]:
        """Return a table whose second axis, slot and state, is split in two."""
        split: Tensor = table.unflatten(1, (self._slots.num_slots, -1))
        return split

    def _of_rows(self, table: Float[Tensor, "sentence n both"]) -> Float[Tensor, "rows n sizes"]:
        """Return what belongs to each row, from a table by sentence, cell, and slot and state."""
        return self._slots.gather(table.unflatten(2, (self._slots.num_slots, -1)).transpose(1, 2))


def _repeat(tensor: Tensor, count: int) -> Tensor:
    """Return a tensor with a new second axis of the given size, along which it is the same."""
    return tensor[:, None].expand(-1, count, *(-1,) * (tensor.dim() - 1))
