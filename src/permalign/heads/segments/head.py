"""Segments: every source cell writes a few tokens by itself, so that orders can be summed over exactly."""

from collections.abc import Sequence
from math import inf
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.checks import require_at_least_one, require_dropout
from permalign.errors import UsageError
from permalign.heads.base import encoded_size
from permalign.heads.copying import CopySource
from permalign.heads.segmental_head import SegmentalHead
from permalign.heads.segments.decoder import SegmentsDecoder
from permalign.heads.segments.phrase_cells import PhraseCells
from permalign.heads.softmax.segmental import History, SegmentalSoftmax
from permalign.kernels.layout import span_offsets
from permalign.shapes import Float, Int
from permalign.structures import (
    Derivation,
    OrderDistribution,
    PrunedLikelihood,
    SynchronousPermutation,
    Transduction,
)
from permalign.text.batching import pad
from permalign.text.codec import END_ID, PADDING_ID

NUM_SAMPLED_TREES = 64  # trees with phrases that are drawn to find the most frequent ones


class SegmentsHead(SegmentalHead):
    """The output is a segment of 0..L tokens for every source cell, written from that cell and preceding output only:

        p(w | cell i, before) = softmax_w(A_i + B_before)        END is the stop of the segment

    What comes before is the segment so far, or the whole output so far; in a chart, both are known where a segment
    begins. With attention, its state also depends on all source cells, but not on their order or on the alignment.
    Nothing else depends on the order of the sentence either (the encoder may have read it in its original order). So
    with a distribution over orders, `permalign.SynchronousPermutation` sums over all orders and all segmentations
    exactly; in one given order, `permalign.SegmentalAlignment` sums over segmentations. O((n + S) V hidden_size +
    n S V) for the tokens, with S the number of distinct contexts: m + 1 for a context of one token or a history of the
    whole output, otherwise L (m + 1).

    Args:
        input_size: the size of the source states.
        vocab_size: the size of the output vocabulary, special tokens included.
        embedding_dim: the size of the embeddings of output tokens.
        hidden_size: the size of the states of the preceding output.
        max_segment_length: L, the most tokens that a source cell writes. An output of m tokens needs n L >= m.
        num_layers: the number of layers of the network over the preceding output.
        dropout: dropout on cells, embeddings and states.
        context: how much a segment sees of the preceding tokens: ``"full"`` for all, or how many of the last ones.
        history: which tokens precede: those of the same ``segment``, or of the whole ``output``.
        max_phrase_length: s, how many adjacent source tokens may write one segment together. Phrases are part of the
            sum over orders: in one given order, every token writes by itself.
        num_negatives: in training, how many tokens are drawn for each batch to stand for those that are not in it (a
            sampled softmax, see `SampledVocabulary`); None for the whole vocabulary.
        attention: whether the states of the preceding output attend to the source (see `SourceAttention`). Attention
            sees cells as a set, so that nothing depends on their order; it cannot be combined with phrases.
        scaled_attention: whether the scores of attention are divided by the square root of ``hidden_size``.
        input_feeding: whether the network over the preceding output reads at every step what it attended to before, as
            the decoder of an `AttentionHead` does (see `InputFeedingContext`); needs attention, a full context and a
            history of the whole output.
        copy_mechanism: whether cells may copy their source words (see `permalign.heads.copying.CopyGate`); phrases copy
            nothing.
        pruning_threshold: the bound of the posterior below which cells are left out of the sum over orders in training
            (see `permalign.SynchronousPermutation.pruned_log_likelihood`); 0 for the exact sum.
        pruning_tolerance: how many nats this may cost a pair at most; None for any number.
        encoder: a module that reads the states first, called with states and lengths; None for no encoder.

    >>> head = SegmentsHead(
    ...     input_size=8, vocab_size=10, embedding_dim=4, hidden_size=6, max_segment_length=2
    ... ).eval()
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
        history: History = "segment",
        max_phrase_length: int = 1,
        num_negatives: int | None = None,
        attention: bool = False,
        scaled_attention: bool = False,
        input_feeding: bool = False,
        copy_mechanism: bool = False,
        pruning_threshold: float = 0.0,
        pruning_tolerance: float | None = None,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(
            input_size=input_size, max_segment_length=max_segment_length, max_phrase_length=max_phrase_length
        )
        require_dropout(dropout)
        if encoder is not None and max_phrase_length > 1:
            raise ValueError(
                f"max_phrase_length is {max_phrase_length}, but the head has an encoder, which reads one given order, "
                "and phrases are part of the sum over all orders. Encode the states before the head."
            )
        if attention and max_phrase_length > 1:
            raise ValueError(
                f"max_phrase_length is {max_phrase_length}, but the head has attention, which would read other cells "
                "in every choice of phrases, and the sum over them would not be exact. Choose one of the two."
            )
        self.input_size, self.vocab_size = input_size, vocab_size
        self.max_segment_length = max_segment_length
        self.encoder, self.copy_mechanism = encoder, copy_mechanism
        self.pruning_threshold = pruning_threshold
        self.pruning_tolerance = inf if pruning_tolerance is None else pruning_tolerance
        self.dropout = nn.Dropout(dropout)
        cell_size = encoded_size(encoder, input_size)
        self.phrases = PhraseCells(cell_size, max_phrase_length) if max_phrase_length > 1 else None
        self.word_scores = SegmentalSoftmax(
            cell_size=cell_size,
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            max_segment_length=max_segment_length,
            num_layers=num_layers,
            dropout=dropout,
            context=context,
            history=history,
            num_negatives=num_negatives,
            attention=attention,
            scaled_attention=scaled_attention,
            input_feeding=input_feeding,
            copy_mechanism=copy_mechanism,
        )

    def cells(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n cell_size"]:
        """Return the source cells, in context if there is an encoder."""
        self.require_states(states, lengths)
        cells: Tensor = self.dropout(states if self.encoder is None else self.encoder(states, lengths))
        return cells

    def decoder(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> SegmentsDecoder:
        """Return a decoder whose rows carry their weight at every cell, so that scores are exact marginals."""
        with torch.no_grad():
            return SegmentsDecoder(self.word_scores, self.cells(states, lengths), lengths, self.copies)

    def segment_log_probs(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "batch n starts sizes"]:
        """Return the log-probability that a cell writes each segment of the output, ``[cell, start, size]``."""
        cells, target = self._checked(states, lengths, target, target_lengths, smoothing)
        return self.word_scores.segment_log_probs(cells, lengths, target, smoothing, self.copies)

    def log_likelihood_over_orders(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the log-probability of every output, summed over all orders of cells and all segmentations."""
        pair = states, lengths, target, target_lengths
        return self._synchronous(distribution, *pair, smoothing).log_likelihood()

    def training_likelihood_over_orders(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> PrunedLikelihood:
        """Return the log-probability of every output, without what the head's pruning leaves out."""
        pair = states, lengths, target, target_lengths
        if not self.pruning_threshold:
            return super().training_likelihood_over_orders(distribution, *pair, smoothing)
        joint = self._synchronous(distribution, *pair, smoothing)
        return joint.pruned_log_likelihood(self.pruning_threshold, self.pruning_tolerance)

    def word_log_probs(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n vocab"]:
        """Return the log-probability of every word that a source token may write by itself; that of END is of none."""
        if (
            self.max_segment_length > 1
            or self.word_scores.history == "output"
            or self.phrases is not None
            or self.copy_mechanism
        ):
            raise UsageError(
                "outputs can be searched exactly only if every source token writes at most one word by itself: the "
                'head must have max_segment_length=1 and history="segment", and neither phrases nor a copy mechanism. '
                "Use beam search."
            )
        with torch.no_grad():
            words = torch.arange(self.vocab_size, device=states.device).expand(len(states), -1)
            cells = self.cells(states, lengths)
            # segments of one word, and of none, which are the same wherever they begin
            segments = self.word_scores.segment_log_probs(cells, lengths, words)
            log_probs = segments[:, :, :-1, 1].clone()
            log_probs[:, :, END_ID] = segments[:, :, 0, 0]
            return log_probs.masked_fill_(~self.word_scores.allowed, -torch.inf)

    def cost_over_orders(self, source_length: int, target_length: int, num_labels: int) -> int:
        """Return the number of pairs of children in all cells of the chart: O(n^3 m^3 K^2 + n^2 m^2 K^3).

        Only cells count that are part of a derivation of the whole output: as a word writes at most L tokens, a span
        of w words writes from m - (n - w) L to w L of the m tokens. The time to count is O(n^2 m).
        """
        n, m, longest = source_length, target_length, self.max_segment_length
        widths, sizes = np.arange(n + 1), np.arange(m + 1)
        fewest, most = np.maximum(0, m - (n - widths) * longest), np.minimum(m, widths * longest)
        is_possible = (fewest[:, None] <= sizes) & (sizes <= most[:, None])  # [width, size]
        starts = m + 1 - sizes  # in how many places of the output a part of each size can begin
        splits = cells = 0
        for width in range(1, n + 1):
            # up_to[s]: the starts of all parts with fewer than s tokens that a span of this width can write
            up_to = np.concatenate([[0], np.cumsum(starts * is_possible[width])])
            left = np.arange(1, width)
            right = width - left
            # if the left child writes s tokens, both write from s + fewest[right] to s + most[right]
            low = np.minimum(sizes + fewest[right, None], m + 1)
            high = np.minimum(sizes + most[right, None] + 1, m + 1)
            both = (up_to[np.maximum(high, low)] - up_to[low]) * is_possible[left]
            splits += (n + 1 - width) * int(both.sum())
            cells += (n + 1 - width) * int(up_to[-1])
        return 2 * (splits * num_labels**2 + cells * num_labels**3)

    def derivations_over_orders(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> list[Transduction]:
        """Return the most probable derivation of every output, with what each source token or phrase writes."""
        with torch.no_grad():
            return self._synchronous(distribution, states, lengths, target, target_lengths).best_derivation()

    def phrase_derivations(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        count: int,
    ) -> list[list[Derivation]] | None:
        """Return the best tree a priori, followed by others, most frequent first; None without phrases.

        The others are the most frequent of 64 sampled trees, for which every sentence gets the same uniform numbers.
        """
        if self.phrases is None:
            return None
        with torch.no_grad():
            zero = torch.zeros_like(lengths)  # the length of an empty output
            prior = self._synchronous(distribution, states, lengths, zero[:, None], zero).prior
            ranked: list[list[Derivation]] = [[best] for best in prior.best_derivation()]
            if count > 1:
                generator = torch.Generator().manual_seed(0)
                # drawn by position and then by sample, so that padding does not change what is drawn
                shape = states.shape[1], NUM_SAMPLED_TREES
                uniforms = torch.rand(shape, generator=generator, dtype=torch.float64).to(states.device)
                frequent = prior.frequent_derivations(uniforms.T[:, None].expand(-1, len(states), -1), count)
                for trees, others in zip(ranked, frequent, strict=True):
                    trees += [tree for tree in others if tree.leaves != trees[0].leaves]
        return [trees[:count] for trees in ranked]

    def leaf_states(
        self, states: Float[Tensor, "batch n input_size"], derivations: Sequence[Derivation]
    ) -> tuple[Float[Tensor, "batch leaves input_size"], Int[Tensor, " batch"]]:
        """Return the cells of the tokens and phrases of each derivation, in its order, and how many there are."""
        if self.phrases is None:
            return super().leaf_states(states, derivations)
        cells = torch.cat([states, self.phrases(states)[0]], dim=1)
        order, lengths = (tensor.to(states.device) for tensor in _leaf_cells(states.shape[1], derivations))
        return cells.gather(1, order[..., None].expand(-1, -1, cells.shape[2])), lengths

    def leaf_copies(self, copies: CopySource, derivations: Sequence[Derivation]) -> CopySource:
        """Return what the leaves of each derivation copy; a phrase copies nothing."""
        if self.phrases is None:
            return super().leaf_copies(copies, derivations)
        order, _ = _leaf_cells(copies.ids.shape[1], derivations)
        room = max(0, int(order.max()) + 1 - copies.ids.shape[1])
        padded = CopySource(functional.pad(copies.ids, (0, room), value=PADDING_ID))
        return padded.in_order(order.to(copies.ids.device))

    def _synchronous(
        self,
        distribution: OrderDistribution,
        states: Tensor,
        lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor,
        smoothing: float = 0.0,
    ) -> SynchronousPermutation:
        """Return the joint distribution of orders, scored by ``distribution``, and segments, scored by the head."""
        cells, target = self._checked(states, lengths, target, target_lengths, smoothing)
        phrase_scores = None
        if self.phrases is not None:
            phrases, phrase_scores = self.phrases(cells)
            cells = torch.cat([cells, self.dropout(phrases)], dim=1)
        segments = self.word_scores.segment_log_probs(cells, lengths, target, smoothing, self.copies)
        return distribution.with_segments(segments, target_lengths, phrase_scores)


def _leaf_cells(num_tokens: int, derivations: Sequence[Derivation]) -> tuple[Tensor, Tensor]:
    """Return the index of the cell of each leaf among those of tokens and phrases, and how many leaves there are."""
    offsets = span_offsets(num_tokens).tolist()
    return pad([[offsets[end - start] + start for start, end in tree.leaves] for tree in derivations])
