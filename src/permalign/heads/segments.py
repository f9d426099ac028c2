"""Segments as a head: every source cell writes a few words by itself, so that orders can be summed over exactly."""

from typing import Literal

import torch
from torch import Tensor, nn

from permalign.heads.base import Head
from permalign.heads.segment_words import History, SegmentWords
from permalign.heads.segments_decoder import SegmentsDecoder
from permalign.heads.words import (
    require_dropout,
    require_room,
    require_sizes,
    require_states,
    require_target,
    width_after,
)
from permalign.shapes import Float, Int
from permalign.structures import (
    LabelledPermutation,
    LabelledSynchronousPermutation,
    Segment,
    SegmentalAlignment,
    SeparablePermutation,
    SynchronousPermutation,
    Transduction,
)


class SegmentsHead(Head):
    """The output is a segment of 0..L words for every source cell, written from that cell and earlier words alone:

        p(w | cell i, words before) = softmax_w(A_i + B_words)        the end is the segment's stop

    The words before are those of the segment, or all of the output so far; in a chart both are known where a segment
    begins. Nothing of the sentence's order is seen (the encoder may have seen the sentence in its original order). So
    with a distribution over orders `permalign.SynchronousPermutation` sums over all orders and all segmentations
    exactly; with one order `permalign.SegmentalAlignment` sums over segmentations. O((n + S) V hidden + n S V) for the
    words, with S the number of different contexts: m + 1 for a context of one word or a history of the whole output,
    else L (m + 1).

    Args:
        width: of the states it reads.
        words: size of the output vocabulary, with its special words.
        embedding: width of the embeddings of output words.
        hidden: width of the states of what a segment has written.
        longest_segment: L. An output of m words needs n L >= m.
        layers: of the network over the words of a segment.
        dropout: of cells, embeddings and states.
        context: what a segment knows of the words before: ``"full"``, all of them, or the number of last words.
        history: which words these are: those of the ``segment``, or of the whole ``output`` so far.
        encoder: what reads the states first, if anything: called with states and lengths, its ``width`` an int.

    >>> head = SegmentsHead(width=8, words=10, embedding=4, hidden=6, longest_segment=2).eval()
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
        longest_segment: int,
        layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = "full",
        history: History = "segment",
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_sizes(width=width, longest_segment=longest_segment)
        require_dropout(dropout)
        self.width, self.words, self.longest_segment = width, words, longest_segment
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.word_scores = SegmentWords(
            cell_width=width_after(encoder, width),
            words=words,
            embedding=embedding,
            hidden=hidden,
            longest_segment=longest_segment,
            layers=layers,
            dropout=dropout,
            context=context,
            history=history,
        )

    def cells(
        self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n cell_width"]:
        """The source cells, in context if there is an encoder."""
        require_states(states, lengths, self.width)
        cells: Tensor = self.dropout(states if self.encoder is None else self.encoder(states, lengths))
        return cells

    def segment_log_probs(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "batch n starts sizes"]:
        """The log-probability that each cell writes each segment of the output, ``[cell, start, size]``."""
        require_target(target, target_lengths, states.shape[0], self.words, smoothing)
        cells = self.cells(states, lengths)
        require_room(lengths, target_lengths, self.longest_segment)
        target = target[:, : int(target_lengths.max())].long()
        return self.word_scores.segment_log_probs(cells, target, smoothing)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The log-probability of every output, the sum over all ways to cut it into one segment for each cell."""
        return self._alignment(states, lengths, target, target_lengths, smoothing).log_likelihood()

    def log_likelihood_over_orders(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The log-probability of every output, summed over all orders of cells and all ways to cut it."""
        segments = self.segment_log_probs(states, lengths, target, target_lengths, smoothing)
        return _synchronous(distribution, segments, target_lengths).log_likelihood()

    def derivations_over_orders(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> list[Transduction]:
        """The most probable derivation of every output, with the words that each token writes."""
        with torch.no_grad():
            segments = self.segment_log_probs(states, lengths, target, target_lengths)
            return _synchronous(distribution, segments, target_lengths).best_derivation()

    def decoder(
        self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]
    ) -> SegmentsDecoder:
        """One row for each sentence; every row carries its weight at every cell, so scores are exact marginals."""
        with torch.no_grad():
            return SegmentsDecoder(self.word_scores, self.cells(states, lengths), lengths)

    def longest_output(self, source_words: int) -> int:
        """Every source word writes a segment."""
        return source_words * self.longest_segment

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

    def _alignment(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float = 0.0
    ) -> SegmentalAlignment:
        log_probs = self.segment_log_probs(states, lengths, target, target_lengths, smoothing)
        return SegmentalAlignment(log_probs, lengths, target_lengths, validate_args=False)


def _synchronous(
    distribution: SeparablePermutation | LabelledPermutation, segments: Tensor, target_lengths: Tensor
) -> SynchronousPermutation:
    """Orders by a distribution, segments by the head."""
    lengths = distribution.lengths
    if isinstance(distribution, SeparablePermutation):
        scores, normal_form = distribution.scores.to(segments), distribution.normal_form
        return SynchronousPermutation(
            scores, segments, lengths, target_lengths, normal_form, validate_args=False
        )
    rules, tokens = distribution.rule_scores.to(segments), distribution.token_scores.to(segments)
    splits, root = distribution.split_scores.to(segments), distribution.root_scores.to(segments)
    return LabelledSynchronousPermutation(
        rules, tokens, segments, splits, lengths, target_lengths, root, validate_args=False
    )
