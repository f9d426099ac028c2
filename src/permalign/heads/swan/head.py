"""SWAN: every source cell writes one segment of the output with an LSTM."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from permalign.checks import require_at_least_one
from permalign.heads.base import encoded_size
from permalign.heads.copying import CopyGate, in_vocabulary, mix
from permalign.heads.output_context import OutputContext
from permalign.heads.segmental_head import SegmentalHead
from permalign.heads.softmax.output import OutputSoftmax
from permalign.heads.swan.decoder import SwanDecoder
from permalign.heads.swan.segment_lstm import SegmentLstm
from permalign.shapes import Float, Int
from permalign.structures.log_space import LOG_ZERO
from permalign.text.codec import END_ID

# Logits kept for the backward pass, 64 MB of them in float32; beyond that, it recomputes them in parts of this size.
MAX_LOGITS = 2**24


class SwanHead(SegmentalHead):
    """Sleep-wake networks (Wang et al., 2017): the output is a segment of 0..L tokens for every source cell.

    The segment of cell t that begins after j tokens is written by an LSTM. Its initial state is
    ``tanh(P h_t + Q s_j + b)``, with ``s_j`` the state of the preceding output, and it writes tokens until it writes a
    stop (the id of END). A segment of L tokens stops by itself, so the probabilities of all outputs sum to one.

    The LSTM runs once for every cell and start that some alignment of the output passes through, which gives the
    segments of all lengths; `permalign.SegmentalAlignment` sums over them. O(n m L (hidden_size^2 + V hidden_size))
    time: the slow alternative to `SsntHead`.

    Args:
        input_size: the size of the source states.
        vocab_size: the size of the output vocabulary, special tokens included.
        embedding_dim: the size of the embeddings of output tokens.
        hidden_size: the size of the states of both networks over the output.
        max_segment_length: L, the most tokens that a source cell writes. An output of m tokens needs n L >= m.
        num_layers: the number of layers of the network over the whole output.
        dropout: dropout on embeddings, and on the states of both networks.
        context: what ``s_j`` depends on: ``"full"`` for an LSTM over all preceding tokens, or how many of the last
            ones.
        num_negatives: in training, how many tokens are drawn for each batch to stand for those that are not in it (a
            sampled softmax, see `SampledVocabulary`); None for the whole vocabulary.
        copy_mechanism: whether cells may copy their source words; see `permalign.heads.copying.CopyGate`.
        encoder: a module that reads the states first, called with states and lengths; None for no encoder.

    >>> head = SwanHead(input_size=8, vocab_size=10, embedding_dim=4, hidden_size=6, max_segment_length=2).eval()
    >>> states, lengths = torch.randn(1, 2, 8), torch.tensor([2])
    >>> empty = head.log_likelihood(states, lengths, torch.tensor([[0]]), torch.tensor([0]))
    >>> torch.allclose(empty, head.decoder(states, lengths).scores()[:, 3])  # END
    True
    """

    def __init__(
        self,
        *,
        input_size: int,
        vocab_size: int,
        embedding_dim: int,
        hidden_size: int,
        max_segment_length: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = "full",
        num_negatives: int | None = None,
        copy_mechanism: bool = False,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size, max_segment_length=max_segment_length)
        self.input_size, self.vocab_size = input_size, vocab_size
        self.max_segment_length = max_segment_length
        self.encoder = encoder
        self.softmax = OutputSoftmax(hidden_size, vocab_size, True, num_negatives)
        self.context = OutputContext(
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            context=context,
        )
        self.segment = SegmentLstm(encoded_size(encoder, input_size), hidden_size, embedding_dim, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.copy_mechanism = copy_mechanism
        self.copy_gate = CopyGate(hidden_size) if copy_mechanism else None

    def cells(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n both"]:
        """Return the source cells, projected to what they add to the initial states of segments."""
        self.require_states(states, lengths)
        cells: Tensor = self.segment.from_cells(
            states if self.encoder is None else self.encoder(states, lengths)
        )
        return cells

    def decoder(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> SwanDecoder:
        """Return a decoder whose rows carry their weight at every cell, so that scores are exact marginals."""
        with torch.no_grad():
            return SwanDecoder(self, self.cells(states, lengths), lengths)

    def segment_log_probs(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "batch n starts sizes"]:
        """Return ``[cell, start, size]``; -inf for segments that no alignment of the output can contain."""
        cells, target = self._checked(states, lengths, target, target_lengths, smoothing)
        sentence, cell, start = self._possible_starts(
            cells.shape[1], lengths, target.shape[1], target_lengths
        )
        steps = self.segment.from_steps(self.context(target))  # (batch, starts, both)
        gates = self.segment.from_words(self.context.embed(target))  # (batch, m, gates)
        state, memory = self.segment.begin(cells[sentence, cell], steps[sentence, start])
        matches = None
        if self.copies is not None:  # one more column, for segments that have reached the end of the output
            matches = pad(self.copies.log_probs(target, cells.shape[1], cells.dtype), (0, 1), value=LOG_ZERO)
        written = state.new_zeros(len(start))  # of the first ``size`` tokens of each segment
        indices, log_probs = [], []
        # All segments grow by one token in each round; those that have reached the end of the output drop out.
        for size in range(self.max_segment_length):
            unfinished = start + size < target_lengths[sentence]
            token = torch.full_like(start, END_ID)
            token[unfinished] = target[sentence[unfinished], (start + size)[unfinished]]
            stop, write = self._stop_or_write(
                self.dropout(state), token, smoothing, matches, (sentence, cell, start + size)
            )
            indices.append((sentence, cell, start, torch.full_like(start, size)))
            log_probs.append(written + stop)
            sentence, cell, start = sentence[unfinished], cell[unfinished], start[unfinished]
            written = (written + write)[unfinished]
            if size + 1 < self.max_segment_length:
                state, memory = self.segment(
                    gates[sentence, start + size], state[unfinished], memory[unfinished]
                )
        indices.append((sentence, cell, start, torch.full_like(start, self.max_segment_length)))
        log_probs.append(written)
        shape = (cells.shape[0], cells.shape[1], target.shape[1] + 1, self.max_segment_length + 1)
        index = tuple(torch.cat(column) for column in zip(*indices, strict=True))
        return cells.new_full(shape, -torch.inf).index_put(index, torch.cat(log_probs))

    def _possible_starts(
        self, num_cells: int, lengths: Tensor, max_target_length: int, target_lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return sentence, cell and start of all segments such that the other cells can write the rest."""
        cell = torch.arange(num_cells, device=lengths.device)[:, None]
        start = torch.arange(max_target_length + 1, device=lengths.device)
        source_length, target_length = lengths[:, None, None], target_lengths[:, None, None]
        before = start <= cell * self.max_segment_length
        after = target_length - start <= (source_length - cell) * self.max_segment_length
        possible = before & after & (cell < source_length) & (start <= target_length)
        sentence, at_cell, at_start = possible.nonzero(as_tuple=True)
        return sentence, at_cell, at_start

    def _stop_or_write(
        self,
        features: Float[Tensor, "rows hidden_size"],
        tokens: Int[Tensor, " rows"],
        smoothing: float,
        matches: Float[Tensor, "batch n columns"] | None,
        index: tuple[Tensor, Tensor, Tensor],
    ) -> tuple[Float[Tensor, " rows"], Float[Tensor, " rows"]]:
        """Return the log-probabilities of stopping and of writing one token per row.

        Args:
            features: the states of segments.
            tokens: the next token of each segment.
            smoothing: label smoothing, of what is not copied.
            matches: the log-probability that each cell writes each token of the output if it copies; None without a
                copy mechanism.
            index: the sentence, the cell and the step of each row.
        """
        known = in_vocabulary(tokens, self.vocab_size)
        stop_or_token = torch.stack([torch.full_like(known, END_ID), known], dim=1)
        stop, write = self._token_log_probs(features, stop_or_token, smoothing).unbind(1)
        if self.copy_gate is None or self.copies is None or matches is None:
            return stop, write
        sentence, cell, step = index
        shares = self.copies.weights(matches.shape[1], features.dtype).sum(2)[sentence, cell]
        keep, copy = self.copy_gate(features, shares)
        copied = matches[sentence, cell, step.clamp(max=matches.shape[2] - 1)]
        return stop + keep, mix(keep, write, copy, copied, tokens >= self.vocab_size)

    def _token_log_probs(self, features: Tensor, tokens: Tensor, smoothing: float) -> Tensor:
        """Return log-probabilities of several tokens per row, in parts if there are more than `MAX_LOGITS`."""
        if features.shape[0] * self.vocab_size <= MAX_LOGITS:
            return self.softmax.log_probs(features, tokens, smoothing)
        rows = max(MAX_LOGITS // self.vocab_size, 1)
        parts = [
            checkpoint(self.softmax.log_probs, *part, smoothing, use_reentrant=False)
            for part in zip(features.split(rows), tokens.split(rows), strict=True)
        ]
        return torch.cat(parts)
