"""`SynchronousPermutation` with phrases by listing every derivation: a reference for tests, and a definition."""

from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from permalign.structures.brute_force.alignments import EnumeratedSegment, compositions
from permalign.structures.brute_force.trees import RULES, EnumeratedTree, Rule, all_trees, packed_splits


class EnumeratedPhraseDerivation(NamedTuple):
    """Fenceposts between leaves, a tree over the leaves, and how many words the leaf at each position writes."""

    fenceposts: tuple[int, ...]
    tree: EnumeratedTree
    sizes: tuple[int, ...]
    log_prob: float = 0.0

    @property
    def order(self) -> tuple[int, ...]:
        """The order of tokens: leaves as the tree puts them, the tokens of each in their own order."""
        return tuple(
            token
            for leaf in self.tree.order
            for token in range(self.fenceposts[leaf], self.fenceposts[leaf + 1])
        )

    @property
    def segments(self) -> list[EnumeratedSegment]:
        """The words of every leaf, in the order of the output."""
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        return [
            EnumeratedSegment(
                tuple(range(self.fenceposts[leaf], self.fenceposts[leaf + 1])), tuple(range(end - size, end))
            )
            for leaf, size, end in zip(self.tree.order, self.sizes, ends, strict=True)
        ]

    @property
    def splits(self) -> list[tuple[int, int, int, Rule]]:
        """The nodes of the tree, as spans of tokens."""
        return [
            (self.fenceposts[i], self.fenceposts[j], self.fenceposts[k], rule)
            for i, j, k, rule in self.tree.splits
        ]


@cache
def all_phrasings(tokens: int, max_phrase_length: int) -> tuple[tuple[int, ...], ...]:
    """Every way to cut the tokens into leaves, given by the fenceposts between them.

    >>> all_phrasings(3, 2)
    ((0, 1, 3), (0, 2, 3), (0, 1, 2, 3))
    """
    return tuple(
        tuple(sum(widths[:leaf]) for leaf in range(leaves + 1))
        for leaves in range(1, tokens + 1)
        for widths in compositions(tokens, leaves, max_phrase_length)
        if 0 not in widths
    )


@cache
def packed_leaves(tokens: int, max_phrase_length: int) -> dict[tuple[int, int], int]:
    """The packed index of every leaf (first token, one past the last): by width, then by first token.

    >>> packed_leaves(3, 2)
    {(0, 1): 0, (1, 2): 1, (2, 3): 2, (0, 2): 3, (1, 3): 4}
    """
    spans = [(start, start + width) for width in range(1, max_phrase_length + 1) for start in range(tokens)]
    return {span: index for index, span in enumerate(span for span in spans if span[1] <= tokens)}


class EnumeratedPhrasePermutation:
    """Reordering and alignment of tokens and phrases by enumeration, with the methods of `SynchronousPermutation`."""

    def __init__(
        self,
        split_scores: Tensor,
        segment_log_probs: Tensor,
        phrase_scores: Tensor,
        source_lengths: Tensor,
        target_lengths: Tensor,
        max_phrase_length: int,
        normal_form: bool = False,
    ) -> None:
        self.split_scores, self.segment_log_probs = split_scores, segment_log_probs
        self.phrase_scores, self.normal_form = phrase_scores, normal_form
        self.size = segment_log_probs.shape[1] - phrase_scores.shape[1]
        self.max_segment_length, self.max_phrase_length = segment_log_probs.shape[3] - 1, max_phrase_length
        self.lengths = [int(length) for length in source_lengths]
        self.target_lengths = [int(length) for length in target_lengths]

    def derivations(self, sentence: int) -> list[EnumeratedPhraseDerivation]:
        """All derivations: leaves, trees over the leaves, and cuts of the output."""
        return [
            EnumeratedPhraseDerivation(fenceposts, tree, sizes)
            for fenceposts in all_phrasings(self.lengths[sentence], self.max_phrase_length)
            for tree in all_trees(0, len(fenceposts) - 1, self.normal_form)
            for sizes in compositions(
                self.target_lengths[sentence], len(fenceposts) - 1, self.max_segment_length
            )
        ]

    def tree_weight(self, sentence: int, fenceposts: tuple[int, ...], tree: EnumeratedTree) -> Tensor:
        """The weight of a derivation before any output: the scores of its rules and phrases."""
        weight = self.split_scores.new_zeros(())
        splits, leaves = packed_splits(self.size), packed_leaves(self.size, self.max_phrase_length)
        for i, j, k, rule in tree.splits:
            split = splits[fenceposts[i], fenceposts[j], fenceposts[k]]
            weight = weight + self.split_scores[sentence, split, RULES.index(rule)]
        for start, end in pairwise(fenceposts):
            if end - start > 1:
                weight = weight + self.phrase_scores[sentence, leaves[start, end] - self.size]
        return weight

    def log_partition(self) -> Tensor:
        """``(batch,)``: the log of the summed weights of all trees, whatever they write."""
        return torch.stack([self._log_partition(sentence) for sentence in range(len(self.lengths))])

    def _log_partition(self, sentence: int) -> Tensor:
        weights = [
            self.tree_weight(sentence, fenceposts, tree)
            for fenceposts in all_phrasings(self.lengths[sentence], self.max_phrase_length)
            for tree in all_trees(0, len(fenceposts) - 1, self.normal_form)
        ]
        return torch.stack(weights).logsumexp(0)

    def weights(self, sentence: int) -> Tensor:
        """The log-probability of every derivation: the tree's, and that of all segments."""
        weights = []
        for derivation in self.derivations(sentence):
            weight = self.tree_weight(sentence, derivation.fenceposts, derivation.tree)
            for leaf, start, size in self._segment_indices(derivation):
                weight = weight + self.segment_log_probs[sentence, leaf, start, size]
            weights.append(weight)
        return torch.stack(weights) - self._log_partition(sentence)

    def _segment_indices(self, derivation: EnumeratedPhraseDerivation) -> list[tuple[int, int, int]]:
        """The packed indices of its segments: leaf, first word, number of words."""
        leaves, word, indices = packed_leaves(self.size, self.max_phrase_length), 0, []
        for segment in derivation.segments:
            indices.append((leaves[segment.source[0], segment.source[-1] + 1], word, len(segment.target)))
            word += len(segment.target)
        return indices

    def log_likelihood(self) -> Tensor:
        """``(batch,)``: the log of the summed probabilities of all derivations."""
        return torch.stack([self.weights(sentence).logsumexp(0) for sentence in range(len(self.lengths))])

    def rule_posteriors(self) -> Tensor:
        """``(batch, split, rule)``: the probability that the tree has this node, given the output."""
        splits, tables = packed_splits(self.size), []
        for sentence in range(len(self.lengths)):
            posterior = self.weights(sentence).softmax(0)
            table = torch.zeros_like(self.split_scores[sentence])
            for probability, derivation in zip(posterior, self.derivations(sentence), strict=True):
                for start, middle, end, rule in derivation.splits:
                    index = torch.tensor(splits[start, middle, end]), torch.tensor(RULES.index(rule))
                    table = table.index_put(index, probability, accumulate=True)
            tables.append(table)
        return torch.stack(tables)

    def segment_posteriors(self) -> Tensor:
        """``(batch, leaf, start, length)``: the probability of each segment, given the output."""
        tables = []
        for sentence in range(len(self.lengths)):
            posterior = self.weights(sentence).softmax(0)
            table = torch.zeros_like(self.segment_log_probs[sentence])
            for probability, derivation in zip(posterior, self.derivations(sentence), strict=True):
                for index in self._segment_indices(derivation):
                    table = table.index_put(tuple(map(torch.tensor, index)), probability, accumulate=True)
            tables.append(table)
        return torch.stack(tables)

    def best_derivation(self) -> list[EnumeratedPhraseDerivation]:
        """For every output the most probable derivation."""
        derivations = []
        for sentence in range(len(self.lengths)):
            weights = self.weights(sentence).detach()
            best = int(weights.argmax())
            derivations.append(self.derivations(sentence)[best]._replace(log_prob=float(weights[best])))
        return derivations

    def outcomes(self, sentence: int) -> dict[tuple[int, ...], float]:
        """The posterior probability of everything that `sample` can return: order, sizes and widths, with padding."""
        probabilities = dict[tuple[int, ...], float]()
        posterior = self.weights(sentence).softmax(0).detach()
        for probability, derivation in zip(posterior.tolist(), self.derivations(sentence), strict=True):
            sizes, widths = [0] * self.size, [0] * self.size
            position = 0
            for size, segment in zip(derivation.sizes, derivation.segments, strict=True):
                sizes[position], widths[position] = size, len(segment.source)
                position += len(segment.source)
            padding = range(len(derivation.order), self.size)
            key = (*derivation.order, *padding, *sizes, *widths)
            probabilities[key] = probabilities.get(key, 0.0) + probability
        return probabilities
