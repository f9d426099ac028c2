"""`SynchronousPermutation` by listing every tree and every way to cut the output: a reference for tests."""

from typing import NamedTuple

import torch
from torch import Tensor

from permalign.structures.brute_force.alignments import EnumeratedSegment, compositions
from permalign.structures.brute_force.separable import EnumeratedPermutation
from permalign.structures.brute_force.trees import RULES, EnumeratedTree, packed_splits


class EnumeratedTransduction(NamedTuple):
    """A tree, and how many words the token at each position writes."""

    tree: EnumeratedTree
    sizes: tuple[int, ...]
    log_prob: float

    @property
    def order(self) -> tuple[int, ...]:
        """The order the tree yields."""
        return self.tree.order

    @property
    def segments(self) -> list[EnumeratedSegment]:
        """The words of every token, in the order of the output."""
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        return [
            EnumeratedSegment((token,), tuple(range(end - size, end)))
            for token, size, end in zip(self.order, self.sizes, ends, strict=True)
        ]


class EnumeratedSynchronousPermutation:
    """Reordering and alignment by enumeration; it has the methods of `SynchronousPermutation`.

    ``split_scores`` is ``(batch, split, rule)``, ``segment_log_probs`` is ``(batch, token, start, length)``. With a
    ``permutation`` of labelled trees it is the twin of `LabelledSynchronousPermutation`.

    >>> scores, segments = torch.zeros(1, 1, 2), torch.zeros(1, 2, 3, 2)
    >>> twin = EnumeratedSynchronousPermutation(scores, segments, torch.tensor([2]), torch.tensor([1]))
    >>> twin.cuts(0)  # two tokens, one word
    [(0, 1), (1, 0)]
    >>> twin.log_likelihood().exp()  # either order, each with probability one half, and either cut
    tensor([2.])
    """

    def __init__(
        self,
        split_scores: Tensor,
        segment_log_probs: Tensor,
        source_lengths: Tensor,
        target_lengths: Tensor,
        normal_form: bool = False,
        permutation: EnumeratedPermutation | None = None,
    ) -> None:
        plain = EnumeratedPermutation(split_scores, source_lengths, normal_form)
        self.permutation = plain if permutation is None else permutation
        self.segment_log_probs = segment_log_probs
        self.target_lengths = [int(length) for length in target_lengths]
        self.max_segment_length = segment_log_probs.shape[3] - 1

    def cuts(self, sentence: int) -> list[tuple[int, ...]]:
        """Every way to cut the output: how many words each position writes."""
        length = self.permutation.lengths[sentence]
        return list(compositions(self.target_lengths[sentence], length, self.max_segment_length))

    def weights(self, sentence: int) -> Tensor:
        """The log-probability of every derivation, ``(tree, cut)``: the tree's, and that of all segments."""
        orders = torch.tensor([tree.order for tree in self.permutation.trees(sentence)])  # (tree, position)
        sizes = torch.tensor(self.cuts(sentence))  # (cut, position)
        starts = sizes.cumsum(1) - sizes
        segments = self.segment_log_probs[sentence][orders[:, None], starts, sizes].sum(-1)
        return self.permutation.log_probs(sentence)[:, None] + segments

    def log_likelihood(self) -> Tensor:
        """``(batch,)``: the log of the summed probabilities of all derivations."""
        rows = range(len(self.target_lengths))
        return torch.stack([self.weights(sentence).flatten().logsumexp(0) for sentence in rows])

    def pruned_log_likelihood(self, kept: Tensor) -> Tensor:
        """``(batch,)``: the same for derivations of kept cells only, ``kept`` being ``(batch, span, p, q)``."""
        answers = []
        for sentence in range(len(self.target_lengths)):
            of_sentence, cuts = kept[sentence].tolist(), self.cuts(sentence)
            whole = [
                [all(of_sentence[span][p][q] for span, p, q in self.cells(tree, cut)) for cut in cuts]
                for tree in self.permutation.trees(sentence)
            ]
            weights = self.weights(sentence).masked_fill(~torch.tensor(whole), -torch.inf)
            answers.append(weights.flatten().logsumexp(0))
        return torch.stack(answers)

    def cells(self, tree: EnumeratedTree, cut: tuple[int, ...]) -> list[tuple[int, int, int]]:
        """The cells of a derivation: the index of every span, tokens included, with the words (p, q) that it writes.

        >>> scores, segments = torch.zeros(1, 1, 2), torch.zeros(1, 2, 3, 2)
        >>> twin = EnumeratedSynchronousPermutation(scores, segments, torch.tensor([2]), torch.tensor([1]))
        >>> straight, inverted = twin.permutation.trees(0)
        >>> sorted(twin.cells(inverted, (1, 0)))  # the second token writes the word
        [(0, 1, 1), (1, 0, 1), (2, 0, 1)]
        """
        position = {token: place for place, token in enumerate(tree.order)}
        ends = [0, *torch.tensor(cut).cumsum(0).tolist()]
        spans = {(token, token + 1) for token in tree.order} | {(i, k) for i, _, k, _ in tree.splits}
        answer = []
        for start, end in spans:
            narrower = sum(self.permutation.size - width + 1 for width in range(1, end - start))
            first = min(position[token] for token in range(start, end))
            answer.append((narrower + start, ends[first], ends[first + end - start]))
        return answer

    def rule_posteriors(self) -> Tensor:
        """``(batch, split, rule)``: the probability that the tree has this node, given the output."""
        tables = []
        for sentence in range(len(self.target_lengths)):
            posterior = self._posterior(sentence).sum(1)
            split_index = packed_splits(self.permutation.size)
            trees = self.permutation.trees(sentence)
            present = posterior.new_zeros(len(trees), len(split_index), 2)
            for row, tree in enumerate(trees):
                for start, middle, end, rule in tree.splits:
                    present[row, split_index[start, middle, end], RULES.index(rule)] = 1
            tables.append(torch.einsum("t,tsr->sr", posterior, present))
        return torch.stack(tables)

    def segment_posteriors(self) -> Tensor:
        """``(batch, token, start, length)``: the probability of each segment, given the output."""
        tables = []
        for sentence in range(len(self.target_lengths)):
            posterior = self._posterior(sentence)
            table = torch.zeros_like(self.segment_log_probs[sentence])
            sizes = torch.tensor(self.cuts(sentence))
            starts = sizes.cumsum(1) - sizes
            for row, tree in enumerate(self.permutation.trees(sentence)):
                for position, token in enumerate(tree.order):
                    index = (torch.full_like(starts[:, 0], token), starts[:, position], sizes[:, position])
                    table = table.index_put(index, posterior[row], accumulate=True)
            tables.append(table)
        return torch.stack(tables)

    def best_derivation(self) -> list[EnumeratedTransduction]:
        """For every output the most probable tree and cut."""
        derivations = []
        for sentence in range(len(self.target_lengths)):
            weights, cuts = self.weights(sentence).detach(), self.cuts(sentence)
            tree, cut = divmod(int(weights.argmax()), len(cuts))
            trees = self.permutation.trees(sentence)
            derivations.append(EnumeratedTransduction(trees[tree], cuts[cut], float(weights[tree, cut])))
        return derivations

    def outcomes(self, sentence: int) -> dict[tuple[int, ...], float]:
        """The posterior probability of everything that `sample` can return: order, sizes and widths, with padding."""
        posterior, probabilities = self._posterior(sentence).detach(), dict[tuple[int, ...], float]()
        for row, tree in enumerate(self.permutation.trees(sentence)):
            for column, sizes in enumerate(self.cuts(sentence)):
                padding = (0,) * (self.permutation.size - len(sizes))
                widths = (1,) * len(sizes)
                key = (*self.permutation.padded(tree.order), *sizes, *padding, *widths, *padding)
                probabilities[key] = probabilities.get(key, 0.0) + float(posterior[row, column])
        return probabilities

    def _posterior(self, sentence: int) -> Tensor:
        weights = self.weights(sentence)
        return weights.flatten().softmax(0).view_as(weights)
