"""Segments as a head: every source cell writes a few words by itself, so that orders can be summed over exactly."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_dropout
from permalign.heads.base import Head, width_after
from permalign.heads.segmental import require_room
from permalign.heads.segments.decoder import SegmentsDecoder
from permalign.heads.segments.phrase_cells import PhraseCells
from permalign.heads.softmax.segmental import History, SegmentalSoftmax
from permalign.kernels.layout import span_offsets
from permalign.shapes import Float, Int
from permalign.structures import (
    Derivation,
    LabelledPermutation,
    LabelledSynchronousPermutation,
    Segment,
    SegmentalAlignment,
    SeparablePermutation,
    SynchronousPermutation,
    Transduction,
)
from permalign.text.batching import pad

DRAWN = 64  # trees with phrases, to find the most frequent among them


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
        max_segment_length: L. An output of m words needs n L >= m.
        layers: of the network over the words of a segment.
        dropout: of cells, embeddings and states.
        context: what a segment knows of the words before: ``"full"``, all of them, or the number of last words.
        history: which words these are: those of the ``segment``, or of the whole ``output`` so far.
        max_phrase_length: how many neighbouring source words may write one segment together, s. Phrases belong to the
            sum over orders: in one given order every word writes by itself.
        encoder: what reads the states first, if anything: called with states and lengths, its ``width`` an int.

    >>> head = SegmentsHead(width=8, words=10, embedding=4, hidden=6, max_segment_length=2).eval()
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
        history: History = "segment",
        max_phrase_length: int = 1,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(
            width=width, max_segment_length=max_segment_length, max_phrase_length=max_phrase_length
        )
        require_dropout(dropout)
        if encoder is not None and max_phrase_length > 1:
            raise ValueError(
                f"max_phrase_length is {max_phrase_length}, but the head has an encoder, which reads one given order, "
                "and phrases belong to the sum over all orders. Encode the states before the head."
            )
        self.width, self.words, self.max_segment_length = width, words, max_segment_length
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        cell_width = width_after(encoder, width)
        self.phrases = PhraseCells(cell_width, max_phrase_length) if max_phrase_length > 1 else None
        self.word_scores = SegmentalSoftmax(
            cell_width=cell_width,
            words=words,
            embedding=embedding,
            hidden=hidden,
            max_segment_length=max_segment_length,
            layers=layers,
            dropout=dropout,
            context=context,
            history=history,
        )

    def cells(
        self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n cell_width"]:
        """The source cells, in context if there is an encoder."""
        self.require_states(states, lengths)
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
        self.require_target(states, target, target_lengths, smoothing)
        cells = self.cells(states, lengths)
        require_room(lengths, target_lengths, self.max_segment_length)
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
        pair = states, lengths, target, target_lengths
        return self._synchronous(distribution, *pair, smoothing).log_likelihood()

    def derivations_over_orders(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> list[Transduction]:
        """The most probable derivation of every output, with the words that each token or phrase writes."""
        with torch.no_grad():
            return self._synchronous(distribution, states, lengths, target, target_lengths).best_derivation()

    def phrase_derivations(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        count: int,
    ) -> list[list[Derivation]] | None:
        """Where words may be phrases: the best tree before any output is seen, and then others, the frequent first.

        The others are among 64 that are drawn, by the same uniform numbers for every sentence.
        """
        if self.phrases is None:
            return None
        with torch.no_grad():
            nothing = torch.zeros_like(lengths)
            prior = self._synchronous(distribution, states, lengths, nothing[:, None], nothing).prior
            found = [[one] for one in prior.best_derivation()]
            if count > 1:
                generator = torch.Generator().manual_seed(0)
                room = states.shape[1], DRAWN  # so that padding does not change what is drawn
                uniforms = torch.rand(room, generator=generator, dtype=torch.float64).to(states.device)
                others = prior.frequent_derivations(uniforms.T[:, None].expand(-1, len(states), -1), count)
                for own, more in zip(found, others, strict=True):
                    own += [one for one in more if one.leaves != own[0].leaves]
        return [list[Derivation](some[:count]) for some in found]

    def leaf_states(
        self, states: Float[Tensor, "batch n width"], derivations: Sequence[Derivation]
    ) -> tuple[Float[Tensor, "batch leaves width"], Int[Tensor, " batch"]]:
        """The cells of words and phrases in the order of each derivation."""
        if self.phrases is None:
            return super().leaf_states(states, derivations)
        cells = torch.cat([states, self.phrases(states)[0]], dim=1)
        offsets = span_offsets(states.shape[1]).tolist()
        places = [[offsets[end - start] + start for start, end in one.leaves] for one in derivations]
        order, lengths = (tensor.to(states.device) for tensor in pad(places))
        return cells.gather(1, order[..., None].expand(-1, -1, cells.shape[2])), lengths

    def decoder(
        self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]
    ) -> SegmentsDecoder:
        """One row for each sentence; every row carries its weight at every cell, so scores are exact marginals."""
        with torch.no_grad():
            return SegmentsDecoder(self.word_scores, self.cells(states, lengths), lengths)

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

    def _synchronous(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Tensor,
        lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor,
        smoothing: float = 0.0,
    ) -> SynchronousPermutation:
        """Orders by a distribution, segments by the head."""
        self.require_target(states, target, target_lengths, smoothing)
        cells, phrase_scores = self.cells(states, lengths), None
        require_room(lengths, target_lengths, self.max_segment_length)
        if self.phrases is not None:
            phrases, phrase_scores = self.phrases(cells)
            cells = torch.cat([cells, self.dropout(phrases)], dim=1)
        target = target[:, : int(target_lengths.max())].long()
        segments = self.word_scores.segment_log_probs(cells, target, smoothing)
        if isinstance(distribution, SeparablePermutation):
            return SynchronousPermutation(
                distribution.scores.to(segments),
                segments,
                distribution.lengths,
                target_lengths,
                distribution.normal_form,
                validate_args=False,
                phrase_scores=phrase_scores,
            )
        if phrase_scores is not None:
            raise ValueError(
                "phrases have no labels. Use a SeparablePermutation, or a head with max_phrase_length=1."
            )
        return LabelledSynchronousPermutation(
            distribution.rule_scores.to(segments),
            distribution.token_scores.to(segments),
            segments,
            distribution.split_scores.to(segments),
            distribution.lengths,
            target_lengths,
            distribution.root_scores.to(segments),
            validate_args=False,
        )

    def _alignment(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float = 0.0
    ) -> SegmentalAlignment:
        log_probs = self.segment_log_probs(states, lengths, target, target_lengths, smoothing)
        return SegmentalAlignment(log_probs, lengths, target_lengths, validate_args=False)
