"""SSNT: source cells, read once from left to right, emit the output; alignments are monotone."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from permalign.checks import require_at_least_one
from permalign.heads.base import Head, encoded_size
from permalign.heads.copying import CopyGate, in_vocabulary, mix
from permalign.heads.output_context import output_context
from permalign.heads.softmax.aligned import AlignedSoftmax
from permalign.heads.softmax.output import with_end
from permalign.heads.ssnt.decoder import SsntDecoder
from permalign.masks import padding_mask
from permalign.products import Linear
from permalign.shapes import Bool, Float, Int
from permalign.structures import MonotoneAlignment, Segment


class SsntHead(Head):
    """Segment-to-segment transduction (Yu, Buys and Blunsom, 2016), summed over all alignments exactly.

    Source cells ``h_i`` are the (reordered) states followed by a learned end cell, in context if there is an encoder.
    States ``s_j`` of the output depend on the preceding tokens only, so that an alignment is a path over cells and
    steps:

        e(i,j)       = sigmoid(w . relu(U h_i + V s_j + b) + c)    emit token j at cell i; otherwise move on
        p(y_j | i,j) = softmax(W [h_i ; s_j] + b)                  END only at the end cell

    With attention, every ``s_j`` is replaced by ``a_j``, which also attends to all cells (see `SourceAttention` and
    `InputFeedingContext`). It still does not depend on the alignment, so that the sum over alignments stays exact.

    The encoder's state of the end cell has seen the whole sentence, and writing there costs no ``e``. So a model may
    learn to write everything at the end cell, and ignore all others. If the end cell writes nothing but END
    (``words_at_end_cell=False``), every word is written at a source cell.

    The only way out of the end cell is to write END, so the probabilities of all outputs sum to one. See
    `permalign.MonotoneAlignment` for the sum. O((n + m) V hidden_size + n m (V + hidden_size)) time, most of it for the
    two projections onto the vocabulary; O((n + m) V + n m hidden_size) memory.

    Args:
        input_size: the size of the source states.
        vocab_size: the size of the output vocabulary, special tokens included.
        embedding_dim: the size of the embeddings of output tokens.
        hidden_size: the size of the states of the output, and of the hidden layer behind ``e``.
        num_layers: the number of layers of the network over the output.
        dropout: dropout in the network over the output.
        context: what ``s_j`` depends on: ``"full"`` for an LSTM over all preceding tokens, or how many of the last
            ones.
        num_negatives: in training, how many tokens are drawn for each batch to stand for those that are not in it (a
            sampled softmax, see `SampledVocabulary`); None for the whole vocabulary.
        attention: whether the states of the output attend to the source; the plain SSNT has states that do not.
        scaled_attention: whether the scores of attention are divided by the square root of ``hidden_size``.
        input_feeding: whether the network over the output reads at every step what it attended to before, as the
            decoder of an `AttentionHead` does (see `InputFeedingContext`); needs attention and a full context.
        words_at_end_cell: whether the end cell writes words as well as END.
        copy_mechanism: whether cells may copy their source words; see `permalign.heads.copying.CopyGate`.
        encoder: a module that reads the cells first, called with states and lengths; None for no encoder.

    >>> head = SsntHead(input_size=8, vocab_size=10, embedding_dim=4, hidden_size=6).eval()
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
        num_layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = "full",
        num_negatives: int | None = None,
        attention: bool = False,
        scaled_attention: bool = False,
        input_feeding: bool = False,
        words_at_end_cell: bool = True,
        copy_mechanism: bool = False,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size)
        self.input_size, self.vocab_size = input_size, vocab_size
        self.end_cell = nn.Parameter(torch.randn(input_size))
        self.encoder = encoder
        cell_size = encoded_size(encoder, input_size)
        self.word_scores = AlignedSoftmax(
            cell_size, hidden_size, vocab_size, num_negatives, words_at_end_cell
        )
        self.context = output_context(
            source_size=cell_size,
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            context=context,
            attention=attention,
            scaled_attention=scaled_attention,
            input_feeding=input_feeding,
        )
        self.emit_cells = Linear(cell_size, hidden_size)  # U and b
        self.emit_steps = Linear(hidden_size, hidden_size, bias=False)  # V
        self.emit = nn.Linear(hidden_size, 1)  # w and c
        self.copy_mechanism = copy_mechanism
        self.copy_gate = CopyGate(cell_size, hidden_size) if copy_mechanism else None

    def cells(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch cells cell_size"], Bool[Tensor, "batch cells"]]:
        """Return ``h``, with the end cell after the last state of each sentence; and a mask of the end cells."""
        self.require_states(states, lengths)
        last = torch.arange(states.shape[1] + 1, device=states.device) == lengths[:, None]
        with_end_cell = torch.where(last[..., None], self.end_cell, pad(states, (0, 0, 0, 1)))
        return with_end_cell if self.encoder is None else self.encoder(with_end_cell, lengths + 1), last

    def emit_logits(
        self,
        cells: Float[Tensor, "batch cells hidden_size"],
        steps: Float[Tensor, "batch steps hidden_size"],
    ) -> Float[Tensor, "batch cells steps"]:
        """Return the log-odds of ``e``, from cells and steps as `emit_cells` and `emit_steps` project them."""
        logits: Tensor = self.emit((cells[:, :, None] + steps[:, None]).relu_())
        return logits.squeeze(-1)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the log-probability of every output, summed over its alignments."""
        return self._alignment(states, lengths, target, target_lengths, smoothing).log_likelihood()

    def decoder(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> SsntDecoder:
        """Return a decoder whose rows carry their weight at every cell, so that scores are exact marginals."""
        with torch.no_grad():
            return SsntDecoder(self, *self.cells(states, lengths))

    def segments(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        order: Int[Tensor, "batch n"] | None,
    ) -> list[list[Segment]]:
        """Return the most probable alignment as segments, without END.

        Source tokens after the last output token share a segment without output. Without an order, segments hold
        positions instead of source tokens.
        """
        if order is None:
            order = torch.arange(states.shape[1], device=states.device).expand(states.shape[:2])
        with torch.no_grad():
            aligned = self._alignment(states, lengths, target, target_lengths).segments(order)
        return [_without(int(end), segments) for end, segments in zip(target_lengths, aligned, strict=True)]

    def alignment_posteriors(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch cells m"]:
        """Return exact posteriors given the order of the states; the end cell follows the last source token."""
        with torch.no_grad():
            posteriors = self._alignment(states, lengths, target, target_lengths).posteriors()
        beyond = padding_mask(target_lengths, posteriors.shape[2])  # END and padding
        posteriors = posteriors.masked_fill(beyond[:, None], 0.0)
        return pad(posteriors, (0, target.shape[1] - posteriors.shape[2]))

    def _alignment(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float = 0.0
    ) -> MonotoneAlignment:
        """Return the distribution over alignments of a batch of pairs, whose outputs include END."""
        self.require_target(states, target, target_lengths, smoothing)
        cells, last = self.cells(states, lengths)
        target = target[:, : int(target_lengths.max())]
        steps = self.context(target, self.context.project(cells, lengths + 1))
        tokens = with_end(target, target_lengths)
        return MonotoneAlignment(
            self.emit_logits(self.emit_cells(cells), self.emit_steps(steps)),
            self._word_log_probs(cells, steps, last, tokens, smoothing),
            lengths + 1,
            target_lengths + 1,
            validate_args=False,
        )

    def _word_log_probs(
        self, cells: Tensor, steps: Tensor, last: Tensor, tokens: Tensor, smoothing: float
    ) -> Tensor:
        """Return the log-probability of each step's token at every cell; smoothing leaves out what is copied."""
        known = in_vocabulary(tokens, self.vocab_size)
        log_probs = self.word_scores.log_probs(cells, steps, last, known, smoothing)
        if self.copy_gate is None or self.copies is None:
            return log_probs
        keep, copy = self.copy_gate(cells, self.copies.shares(cells), steps)
        copied = self.copies.log_probs(tokens, cells.shape[1], cells.dtype)
        return mix(keep, log_probs, copy, copied, (tokens >= self.vocab_size)[:, None])


def _without(index: int, segments: list[Segment]) -> list[Segment]:
    """Remove the output token at an index, and segments that are then empty."""
    without_token = (
        Segment(segment.source, tuple(token for token in segment.target if token != index))
        for segment in segments
    )
    return [segment for segment in without_token if segment.source or segment.target]
