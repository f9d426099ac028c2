"""Monotone alignment as a head: source cells, read once from left to right, emit the output (SSNT)."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from permalign.checks import require_at_least_one
from permalign.heads.base import Head, width_after
from permalign.heads.output_context import OutputContext
from permalign.heads.softmax.aligned import AlignedSoftmax
from permalign.heads.softmax.output import with_end
from permalign.heads.ssnt.decoder import SsntDecoder
from permalign.shapes import Bool, Float, Int
from permalign.structures import MonotoneAlignment, Segment


class SsntHead(Head):
    """Segment-to-segment transduction (Yu, Buys and Blunsom, 2016), summed over all alignments exactly.

    Source cells are the (reordered) states and a learned end cell behind them, ``h_i`` after the encoder. States of
    the output, ``s_j``, are made from the words before alone, so that an alignment is a path over cells and steps:

        e(i,j)       = sigmoid(w . relu(U h_i + V s_j + b) + c)    emit word j at cell i, or else move on
        p(y_j | i,j) = softmax(W [h_i ; s_j] + b)                  the end only at the end cell

    The end cell cannot be left but by writing the end, so probabilities of all outputs sum to one. See
    `permalign.MonotoneAlignment` for the sum. O((n + m) V hidden + n m (V + hidden)) time, of which the two
    projections to words take most; O((n + m) V + n m hidden) memory.

    Args:
        width: of the states it reads.
        words: size of the output vocabulary, with its special words.
        embedding: width of the embeddings of output words.
        hidden: width of the output's states and of the hidden layer behind ``e``.
        layers: of the network over the output.
        dropout: of the network over the output.
        context: what ``s_j`` sees: ``"full"``, an LSTM over all words before, or the number of last words.
        encoder: what reads the cells first, if anything: called with states and lengths, its ``width`` an int.

    >>> head = SsntHead(width=8, words=10, embedding=4, hidden=6).eval()
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
        layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = "full",
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(width=width)
        self.width, self.words = width, words
        self.end_cell = nn.Parameter(torch.randn(width))
        self.encoder = encoder
        cell_width = width_after(encoder, width)
        self.word_scores = AlignedSoftmax(cell_width, hidden, words)
        self.context = OutputContext(
            words=words, embedding=embedding, hidden=hidden, layers=layers, dropout=dropout, context=context
        )
        self.emit_cells = nn.Linear(cell_width, hidden)  # U and b
        self.emit_steps = nn.Linear(hidden, hidden, bias=False)  # V
        self.emit = nn.Linear(hidden, 1)  # w and c

    def cells(
        self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch cells cell_width"], Bool[Tensor, "batch cells"]]:
        """``h``, the states with the end cell behind each sentence, in context; and where the end cells are."""
        self.require_states(states, lengths)
        last = torch.arange(states.shape[1] + 1, device=states.device) == lengths[:, None]
        longer = torch.where(last[..., None], self.end_cell, pad(states, (0, 0, 0, 1)))
        return longer if self.encoder is None else self.encoder(longer, lengths + 1), last

    def emit_logits(
        self, cells: Float[Tensor, "batch cells hidden"], steps: Float[Tensor, "batch steps hidden"]
    ) -> Float[Tensor, "batch cells steps"]:
        """Log-odds of emitting, from cells and steps as the first layer projects them."""
        logits: Tensor = self.emit((cells[:, :, None] + steps[:, None]).relu_())
        return logits.squeeze(-1)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The log-probability of every output, the sum over its alignments."""
        return self._alignment(states, lengths, target, target_lengths, smoothing).log_likelihood()

    def decoder(self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]) -> SsntDecoder:
        """One row for each sentence; every row carries its weight at every cell, so scores are exact marginals."""
        with torch.no_grad():
            return SsntDecoder(self, *self.cells(states, lengths))

    def segments(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        order: Int[Tensor, "batch n"] | None,
    ) -> list[list[Segment]]:
        """The most probable alignment as segments, without the end of the output.

        Source words that only the end came after have a segment of their own, with no output. Without an order
        positions are named in place of source words.
        """
        if order is None:
            order = torch.arange(states.shape[1], device=states.device).expand(states.shape[:2])
        with torch.no_grad():
            found = self._alignment(states, lengths, target, target_lengths).segments(order)
        return [_without(int(end), segments) for end, segments in zip(target_lengths, found, strict=True)]

    def alignment_posteriors(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch cells m"]:
        """Exact, given the order of the states; the end cell of a sentence comes behind its last word."""
        with torch.no_grad():
            posteriors = self._alignment(states, lengths, target, target_lengths).posteriors()
        words = torch.arange(posteriors.shape[2], device=posteriors.device)
        posteriors = posteriors.masked_fill((words >= target_lengths[:, None])[:, None], 0.0)  # not the end
        return pad(posteriors, (0, target.shape[1] - posteriors.shape[2]))

    def _alignment(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float = 0.0
    ) -> MonotoneAlignment:
        """Everything about a batch of pairs: ``e`` and the words of all outputs, the end included."""
        self.require_target(states, target, target_lengths, smoothing)
        cells, last = self.cells(states, lengths)
        target = target[:, : int(target_lengths.max())]
        steps = self.context(target)
        wanted = with_end(target, target_lengths)
        return MonotoneAlignment(
            self.emit_logits(self.emit_cells(cells), self.emit_steps(steps)),
            self.word_scores.log_probs(cells, steps, last, wanted, smoothing),
            lengths + 1,
            target_lengths + 1,
            validate_args=False,
        )


def _without(end: int, segments: list[Segment]) -> list[Segment]:
    """Segments without the output word ``end``, and without those that are then empty."""
    kept = (Segment(part.source, tuple(word for word in part.target if word != end)) for part in segments)
    return [part for part in kept if part.source or part.target]
