"""`LabelledPermutation` by listing all its labelled trees: a reference for tests, and a definition.

A tree over n words has 2n - 1 nodes and leaves, each with one of K labels. Its weight is the exponential of the sum of
the scores of its root's label, of its rules, of its words' labels and of its splits; that of an order is the sum over
trees and labels. Everything is computed in logarithms, nothing is shared, and gradients come from autograd.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from permalign.structures.brute_force.separable import EnumeratedPermutation
from permalign.structures.brute_force.trees import RULES, EnumeratedTree, all_trees, packed_splits


class LabelledTree(NamedTuple):
    """A tree, the labels of its nodes and leaves in pre-order, and its probability."""

    tree: EnumeratedTree
    labels: tuple[int, ...]
    log_prob: float

    @property
    def order(self) -> tuple[int, ...]:
        """The order the tree yields."""
        return self.tree.order


class EnumeratedLabelledPermutation(EnumeratedPermutation):
    """The distribution over labelled trees, by enumeration; it has the methods of `LabelledPermutation`.

    What concerns trees without their labels is inherited, with weights summed over labels.

    >>> twin = EnumeratedLabelledPermutation(torch.zeros(2, 3, 3, 3), torch.zeros(1, 2, 3))
    >>> twin.log_partition().exp().round()  # two trees, three labels for each of three nodes
    tensor([54.])
    """

    def __init__(
        self,
        rule_scores: Tensor,
        token_scores: Tensor,
        split_scores: Tensor | None = None,
        lengths: Tensor | None = None,
        root_scores: Tensor | None = None,
    ) -> None:
        batch, words, self.labels = token_scores.shape
        splits = token_scores.new_zeros(batch, len(packed_splits(words)), 2)
        super().__init__(splits if split_scores is None else split_scores, lengths)
        self.rule_scores, self.token_scores = rule_scores, token_scores
        self.root_scores = token_scores.new_zeros(self.labels) if root_scores is None else root_scores

    def labelled_weights(self, sentence: int, start: int, end: int) -> Tensor:
        """The log weights ``(tree, labels)`` of every labelled tree over a span, without the root's score."""
        chosen = all_labels(2 * (end - start) - 1, self.labels)
        return torch.stack([self._weight(sentence, tree, chosen) for tree in all_trees(start, end)])

    def _weight(self, sentence: int, tree: EnumeratedTree, chosen: Tensor) -> Tensor:
        nodes, split_index = pre_order(tree), packed_splits(self.size)
        total = self.token_scores.new_zeros(len(chosen))
        for number, node in enumerate(nodes):
            label = chosen[:, number]
            if node.rule is None:
                total = total + self.token_scores[sentence, node.start, label]
            else:
                left, right = node.children
                orientation, split = RULES.index(node.rule), split_index[node.start, left.end, node.end]
                of_children = chosen[:, nodes.index(left)], chosen[:, nodes.index(right)]
                total = total + self.rule_scores[orientation, label, *of_children]
                total = total + self.scores[sentence, split, orientation]
        return total

    def sentence_weights(self, sentence: int) -> Tensor:
        """The log weights ``(tree, labels)`` of every labelled tree over a sentence."""
        length = self.lengths[sentence]
        top = self.root_scores[all_labels(2 * length - 1, self.labels)[:, 0]]
        return self.labelled_weights(sentence, 0, length) + top

    def weights(self, sentence: int, start: int, end: int) -> Tensor:
        """The log weight of every tree over a sentence, ``(tree,)``, summed over labels."""
        if (start, end) != (0, self.lengths[sentence]):
            raise ValueError(f"only whole sentences have a root, and ({start}, {end}) is none.")
        return self.sentence_weights(sentence).logsumexp(1)

    def _probabilities(self, sentence: int) -> Tensor:
        weights = self.sentence_weights(sentence)
        return weights.flatten().softmax(0).view_as(weights)

    def entropy(self) -> Tensor:
        """``(batch,)``: the entropy of labelled trees."""
        values = []
        for sentence in range(len(self.scores)):
            log_probs = self.sentence_weights(sentence).flatten().log_softmax(0)
            values.append(-(log_probs.exp() * log_probs).sum())
        return torch.stack(values)

    def span_marginals(self) -> Tensor:
        """``(batch, span, label)``: the probability that a tree has the span with the label."""
        span_index = {span: index for index, span in enumerate(_spans(self.size))}
        marginals = self.scores.new_zeros(len(self.scores), len(span_index), self.labels)
        for sentence, length in enumerate(self.lengths):
            chosen = all_labels(2 * length - 1, self.labels)
            rows = zip(self.trees(sentence), self._probabilities(sentence), strict=True)
            for tree, probabilities in rows:
                for column, node in enumerate(pre_order(tree)):
                    span = torch.full_like(chosen[:, 0], span_index[node.start, node.end])
                    index = (torch.full_like(span, sentence), span, chosen[:, column])
                    marginals = marginals.index_put(index, probabilities, accumulate=True)
        return marginals

    def rule_counts(self) -> Tensor:
        """``(batch, orientation, label, left label, right label)``: how many nodes use each rule, on average."""
        shape = (len(self.scores), *self.rule_scores.shape)
        counts = self.scores.new_zeros(shape)
        for sentence, length in enumerate(self.lengths):
            chosen = all_labels(2 * length - 1, self.labels)
            rows = zip(self.trees(sentence), self._probabilities(sentence), strict=True)
            for tree, probabilities in rows:
                nodes = pre_order(tree)
                for number, node in enumerate(nodes):
                    if node.rule is not None:
                        family = [number, *(nodes.index(child) for child in node.children)]
                        of_family = (chosen[:, column] for column in family)
                        fixed = [torch.full_like(chosen[:, 0], n) for n in (sentence, RULES.index(node.rule))]
                        counts = counts.index_put((*fixed, *of_family), probabilities, accumulate=True)
        return counts

    def top_labelled(self, count: int) -> list[list[LabelledTree]]:
        """For every sentence the most probable labelled trees, best first."""
        ranked = []
        for sentence, length in enumerate(self.lengths):
            weights = self.sentence_weights(sentence).detach()
            chosen, trees = all_labels(2 * length - 1, self.labels).tolist(), self.trees(sentence)
            best, rows = weights.flatten().log_softmax(0).sort(descending=True, stable=True)
            pairs = zip(rows[:count].tolist(), best[:count].tolist(), strict=True)
            ranked.append(
                [
                    LabelledTree(trees[row // len(chosen)], tuple(chosen[row % len(chosen)]), log_prob)
                    for row, log_prob in pairs
                ]
            )
        return ranked

    def greedy_labelled(self) -> list[tuple[EnumeratedTree, tuple[int, ...]]]:
        """The best label of the root, then the option with the largest share at each node; labels are in pre-order."""
        derivations = []
        for sentence, length in enumerate(self.lengths):
            top = int((self.root_scores + self._by_label(sentence, 0, length)).argmax())
            derivations.append(self._greedy_below(sentence, 0, length, top))
        return derivations

    def _by_label(self, sentence: int, start: int, end: int) -> Tensor:
        """The log weights ``(label,)`` of all trees over a span, by the label of its node."""
        weights = self.labelled_weights(sentence, start, end).detach()
        top = all_labels(2 * (end - start) - 1, self.labels)[:, 0]
        return torch.stack([weights[:, top == label].flatten().logsumexp(0) for label in range(self.labels)])

    def _greedy_below(
        self, sentence: int, start: int, end: int, label: int
    ) -> tuple[EnumeratedTree, tuple[int, ...]]:
        if end == start + 1:
            return EnumeratedTree(start, end), (label,)
        options = {}
        for middle in range(start + 1, end):
            left, right = self._by_label(sentence, start, middle), self._by_label(sentence, middle, end)
            for orientation in range(2):
                split = self.scores[sentence, packed_splits(self.size)[start, middle, end], orientation]
                weights = split + self.rule_scores[orientation, label] + left[:, None] + right
                for pair, weight in enumerate(weights.flatten().tolist()):
                    options[middle, orientation, pair // self.labels, pair % self.labels] = weight
        middle, orientation, left_label, right_label = max(options, key=options.__getitem__)
        left_tree, left_labels = self._greedy_below(sentence, start, middle, left_label)
        right_tree, right_labels = self._greedy_below(sentence, middle, end, right_label)
        tree = EnumeratedTree(start, end, RULES[orientation], (left_tree, right_tree))
        return tree, (label, *left_labels, *right_labels)


@cache
def all_labels(nodes: int, labels: int) -> Tensor:
    """Every way to label a number of nodes, ``(labels ** nodes, nodes)``.

    >>> all_labels(2, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    return torch.cartesian_prod(*[torch.arange(labels)] * nodes).reshape(-1, nodes)


def pre_order(tree: EnumeratedTree) -> list[EnumeratedTree]:
    """The nodes of a tree: each before its left child, and that before its right child."""
    return [tree, *(node for child in tree.children for node in pre_order(child))]


def _spans(words: int) -> list[tuple[int, int]]:
    """Spans by width, then start."""
    return [(start, start + width) for width in range(1, words + 1) for start in range(words - width + 1)]
