"""Segmental alignment as a head: every source cell writes one segment of the output (SWAN)."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from permalign.checks import require_at_least_one
from permalign.heads.base import Head, width_after
from permalign.heads.output_context import OutputContext
from permalign.heads.segmental import require_room
from permalign.heads.softmax.output import OutputSoftmax
from permalign.heads.swan.decoder import SwanDecoder
from permalign.heads.swan.segment_lstm import SegmentLstm
from permalign.shapes import Float, Int
from permalign.structures import Segment, SegmentalAlignment
from permalign.text.codec import END_ID

# logits at a time, 64 MB of them; where there are more, the backward pass computes them again
AT_ONCE = 2**24


class SwanHead(Head):
    """Sleep-wake networks (Wang et al., 2017): the output is a segment of 0..L words for every source cell.

    A segment of cell t that starts after j words is written by an LSTM from ``tanh(P h_t + Q s_j + b)``, with ``s_j``
    the state of the words written before, until it writes a stop (the end's number stands for it). A segment of L words
    stops by itself, so the probabilities of all outputs sum to one. The LSTM runs once for every cell and start that
    some alignment of the output can pass through, which gives all lengths; `permalign.SegmentalAlignment` sums over
    them. O(n m L (hidden^2 + V hidden)) time: the slow alternative to `SsntHead`.

    Args:
        width: of the states it reads.
        words: size of the output vocabulary, with its special words.
        embedding: width of the embeddings of output words.
        hidden: width of both networks over the output.
        max_segment_length: L, the most words that a source cell writes. An output of m words needs n L >= m.
        layers: of the network over all words written.
        dropout: of embeddings, and of both networks' states.
        context: what ``s_j`` sees: ``"full"``, an LSTM over all words before, or the number of last words.
        encoder: what reads the states first, if anything: called with states and lengths, its ``width`` an int.

    >>> head = SwanHead(width=8, words=10, embedding=4, hidden=6, max_segment_length=2).eval()
    >>> states, lengths = torch.randn(1, 2, 8), torch.tensor([2])
    >>> empty = head.log_likelihood(states, lengths, torch.tensor([[0]]), torch.tensor([0]))
    >>> torch.allclose(empty, head.decoder(states, lengths).scores()[:, 3])  # the end
    True
    """

    def __init__(
        self,
        *,
        width: int,
        words: int,
        embedding: int,
        hidden: int,
        max_segment_length: int,
        layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = "full",
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(width=width, max_segment_length=max_segment_length)
        self.width, self.words, self.max_segment_length = width, words, max_segment_length
        self.encoder = encoder
        self.softmax = OutputSoftmax(hidden, words, with_end=True)
        self.context = OutputContext(
            words=words, embedding=embedding, hidden=hidden, layers=layers, dropout=dropout, context=context
        )
        self.segment = SegmentLstm(width_after(encoder, width), hidden, embedding, hidden)
        self.dropout = nn.Dropout(dropout)

    def cells(
        self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n both"]:
        """The source cells in context, as first states of segments see them."""
        self.require_states(states, lengths)
        cells: Tensor = self.segment.from_cells(
            states if self.encoder is None else self.encoder(states, lengths)
        )
        return cells

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The log-probability of every output, the sum over all ways to cut it into segments."""
        return self._alignment(states, lengths, target, target_lengths, smoothing).log_likelihood()

    def decoder(self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]) -> SwanDecoder:
        """One row for each sentence; every row carries its weight at every cell, so scores are exact marginals."""
        with torch.no_grad():
            return SwanDecoder(self, self.cells(states, lengths), lengths)

    def max_output_length(self, source_words: int) -> int:
        """Every source word writes a segment."""
        return source_words * self.max_segment_length

    def segments(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        order: Int[Tensor, "batch n"] | None,
    ) -> list[list[Segment]]:
        """The most probable way to cut the output, a segment for every source word; or position, without an order."""
        with torch.no_grad():
            return self._alignment(states, lengths, target, target_lengths).segments(order)

    def alignment_posteriors(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch cells m"]:
        """Exact, given the order of the states: a cell wrote a word if the word is in its segment."""
        with torch.no_grad():
            segments = self._alignment(states, lengths, target, target_lengths).posteriors()
        batch, cells, starts, _ = segments.shape
        written = segments.new_zeros(batch, cells, target.shape[1])
        for word in range(starts - 1):
            for size in range(1, self.max_segment_length + 1):
                first = max(word - size + 1, 0)
                written[:, :, word] += segments[:, :, first : word + 1, size].sum(2)
        return written

    def _alignment(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float = 0.0
    ) -> SegmentalAlignment:
        """Everything about a batch of pairs: the log-probability of every segment."""
        self.require_target(states, target, target_lengths, smoothing)
        cells = self.cells(states, lengths)
        require_room(lengths, target_lengths, self.max_segment_length)
        target = target[:, : int(target_lengths.max())]
        log_probs = self._segment_log_probs(cells, lengths, target, target_lengths, smoothing)
        return SegmentalAlignment(log_probs, lengths, target_lengths, validate_args=False)

    def _segment_log_probs(
        self, cells: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float
    ) -> Float[Tensor, "batch cells starts sizes"]:
        """``[cell, start, size]``, word by word in all segments that can be part of the output; -inf for others."""
        sentence, cell, start = self._starts(cells.shape[1], lengths, target.shape[1], target_lengths)
        steps = self.segment.from_steps(self.context(target))  # (batch, starts, both)
        gates = self.segment.from_words(self.context.embed(target))  # (batch, words, gates)
        state, memory = self.segment.begin(cells[sentence, cell], steps[sentence, start])
        written = state.new_zeros(len(start))
        places, values = [], []
        for size in range(self.max_segment_length):
            more = start + size < target_lengths[sentence]  # whether a word is left to write
            word = torch.full_like(start, END_ID)
            word[more] = target[sentence[more], (start + size)[more]]
            options = torch.stack([torch.full_like(word, END_ID), word], dim=1)
            stop, write = self._log_probs(self.dropout(state), options, smoothing).unbind(1)
            places.append((sentence, cell, start, torch.full_like(start, size)))
            values.append(written + stop)
            sentence, cell, start, written = sentence[more], cell[more], start[more], (written + write)[more]
            if size + 1 < self.max_segment_length:
                state, memory = self.segment(gates[sentence, start + size], state[more], memory[more])
        places.append((sentence, cell, start, torch.full_like(start, self.max_segment_length)))
        values.append(written)
        sizes = (cells.shape[0], cells.shape[1], target.shape[1] + 1, self.max_segment_length + 1)
        index = tuple(torch.cat(column) for column in zip(*places, strict=True))
        return cells.new_full(sizes, -torch.inf).index_put(index, torch.cat(values))

    def _starts(
        self, cells: int, lengths: Tensor, words: int, target_lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sentence, cell and start of all segments that an output can have: cells before and after have room."""
        cell = torch.arange(cells, device=lengths.device)[:, None]
        start = torch.arange(words + 1, device=lengths.device)
        cells_left, words_left = (most[:, None, None] for most in (lengths, target_lengths))
        before = start <= cell * self.max_segment_length
        after = words_left - start <= (cells_left - cell) * self.max_segment_length
        possible = before & after & (cell < cells_left) & (start <= words_left)
        sentence, at_cell, at_start = possible.nonzero(as_tuple=True)
        return sentence, at_cell, at_start

    def _log_probs(self, features: Tensor, options: Tensor, smoothing: float) -> Tensor:
        """Log-probabilities of some words in each row, a part of the rows at a time if the vocabulary is large."""
        if features.shape[0] * self.words <= AT_ONCE:
            return self.softmax.log_probs(features, options, smoothing)
        rows = max(AT_ONCE // self.words, 1)
        parts = [
            checkpoint(self.softmax.log_probs, *part, smoothing, use_reentrant=False)
            for part in zip(features.split(rows), options.split(rows), strict=True)
        ]
        return torch.cat(parts)
