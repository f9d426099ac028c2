"""`SeparablePermutation` by listing all its trees: a reference for tests, and a definition.

A tree's weight is the exponential of the sum of the scores of its splits. Every method below is a sum, a maximum or a
draw over the whole list, which has Catalan(n-1) * 2^(n-1) members (1344 for six words). Nothing is shared, nothing is
clever, and gradients come from autograd.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from permalign.structures.brute_force.trees import (
    RULES,
    EnumeratedTree,
    Rule,
    all_trees,
    length_of_packed,
    packed_splits,
)
from permalign.structures.permutations import permutation_matrix


class WeighedTree(NamedTuple):
    """A tree with its probability."""

    tree: EnumeratedTree
    log_prob: float

    @property
    def order(self) -> tuple[int, ...]:
        """The order the tree yields."""
        return self.tree.order


class EnumeratedOrders(NamedTuple):
    """The most probable orders of a batch; enumeration proves them, so the gap is zero."""

    order: Tensor  # (batch, position)
    log_prob: Tensor  # (batch,)
    gap: Tensor  # (batch,)


class EnumeratedPermutation:
    """The distribution over separable permutations, by enumeration; it has the methods of `SeparablePermutation`.

    ``scores`` is ``(batch, split, rule)``, packed by width; ``lengths`` is ``(batch,)``.

    >>> twin = EnumeratedPermutation(torch.zeros(1, 4, 2))
    >>> twin.log_partition().exp()
    tensor([8.])
    >>> twin.log_prob(torch.tensor([[2, 1, 0]])).exp()  # two of the eight trees
    tensor([0.2500])
    """

    def __init__(self, scores: Tensor, lengths: Tensor | None = None, normal_form: bool = False) -> None:
        self.scores = scores
        self.normal_form = normal_form
        self.size = length_of_packed(scores.shape[1])
        self.lengths = [self.size] * len(scores) if lengths is None else [int(length) for length in lengths]

    def trees(self, sentence: int) -> tuple[EnumeratedTree, ...]:
        """All trees over one sentence of the batch."""
        return all_trees(0, self.lengths[sentence], self.normal_form)

    def weights(self, sentence: int, start: int, end: int) -> Tensor:
        """The log weight of every tree over a span, ``(tree,)``: the sum of the scores of its splits."""
        flat = self.scores[sentence].flatten()  # (split rule,)
        return flat[_used_splits(start, end, self.normal_form, self.size)].sum(-1)

    def log_probs(self, sentence: int) -> Tensor:
        """The log probability of every tree of a sentence, ``(tree,)``."""
        return self.weights(sentence, 0, self.lengths[sentence]).log_softmax(0)

    def log_partition(self) -> Tensor:
        """``(batch,)``: the log of the summed weights."""
        return torch.stack([self.weights(b, 0, length).logsumexp(0) for b, length in enumerate(self.lengths)])

    def rule_marginals(self) -> Tensor:
        """``(batch, split, rule)``: the probability that the tree has this node."""
        return torch.stack([self._rule_marginals(b) for b in range(len(self.scores))])

    def _rule_marginals(self, sentence: int) -> Tensor:
        trees, split_index = self.trees(sentence), packed_splits(self.size)
        present = self.scores.new_zeros(len(trees), *self.scores.shape[1:])  # (tree, split, rule)
        for row, tree in enumerate(trees):
            for start, middle, end, rule in tree.splits:
                present[row, split_index[start, middle, end], RULES.index(rule)] = 1
        return torch.einsum("t,tsr->sr", self.log_probs(sentence).exp(), present)

    def rule_probabilities(self) -> Tensor:
        """``(batch, split, rule)``: of the trees over a span, the share that begins with this rule."""
        return torch.stack([self._rule_probabilities(b) for b in range(len(self.scores))])

    def _rule_probabilities(self, sentence: int) -> Tensor:
        table = [[self.scores.new_zeros(()), self.scores.new_zeros(())] for _ in packed_splits(self.size)]
        for (start, middle, end), split in packed_splits(self.size).items():
            if end <= self.lengths[sentence]:
                trees = all_trees(start, end, self.normal_form)
                share = self.weights(sentence, start, end).softmax(0)
                for column, rule in enumerate(RULES):
                    chosen = [tree.rule == rule and tree.children[0].end == middle for tree in trees]
                    table[split][column] = share[torch.tensor(chosen)].sum()
        if not table:
            return self.scores.new_zeros(0, 2)
        return torch.stack([torch.stack(row) for row in table])

    def expected_matrix(self) -> Tensor:
        """``(batch, position, token)``: the mean permutation matrix; padding is the identity."""
        return torch.stack([self._expected_matrix(b) for b in range(len(self.scores))])

    def _expected_matrix(self, sentence: int) -> Tensor:
        matrices = torch.stack(
            [permutation_matrix(self.padded(tree.order), self.scores.dtype) for tree in self.trees(sentence)]
        )  # (tree, position, token)
        return torch.einsum("t,tpq->pq", self.log_probs(sentence).exp(), matrices)

    def padded(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """The order followed by padding, which keeps its place."""
        return order + tuple(range(len(order), self.size))

    def sample(self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Orders ``(*sample_shape, batch, position)``: draw a tree from the list."""
        count = int(torch.Size(sample_shape).numel())
        columns = []
        for sentence in range(len(self.scores)):
            probabilities = self.log_probs(sentence).exp().detach()
            drawn = torch.multinomial(probabilities, count, replacement=True, generator=generator)
            orders = torch.tensor([self.padded(tree.order) for tree in self.trees(sentence)])
            columns.append(orders[drawn])
        return torch.stack(columns, 1).reshape(*sample_shape, len(self.scores), self.size)

    def log_prob(self, order: Tensor) -> Tensor:
        """The log-probability of orders ``(..., batch, position)``: that of all trees that yield them, summed."""
        flat = order.reshape(-1, len(self.scores), self.size)
        known = [self.order_log_probs(sentence) for sentence in range(len(self.scores))]
        impossible = self.scores.new_tensor(-torch.inf)
        rows = [
            torch.stack([known[b].get(tuple(sample[b].tolist()), impossible) for b in range(len(known))])
            for sample in flat
        ]
        return torch.stack(rows).reshape(order.shape[:-1])

    def order_log_probs(self, sentence: int) -> dict[tuple[int, ...], Tensor]:
        """For every order some tree yields, the log of the summed probability of all trees that do."""
        rows: dict[tuple[int, ...], list[int]] = {}
        for row, tree in enumerate(self.trees(sentence)):
            rows.setdefault(self.padded(tree.order), []).append(row)
        log_probs = self.log_probs(sentence)
        return {order: log_probs[chosen].logsumexp(0) for order, chosen in rows.items()}

    def top_derivations(self, count: int) -> list[list[WeighedTree]]:
        """For every sentence the most probable trees, best first."""
        ranked = []
        for sentence in range(len(self.scores)):
            best, rows = self.log_probs(sentence).detach().sort(descending=True, stable=True)
            trees = self.trees(sentence)
            pairs = zip(rows[:count].tolist(), best[:count].tolist(), strict=True)
            ranked.append([WeighedTree(trees[row], log_prob) for row, log_prob in pairs])
        return ranked

    def best_derivation(self) -> list[WeighedTree]:
        """For every sentence the most probable tree."""
        return [ranked[0] for ranked in self.top_derivations(1)]

    def greedy_derivation(self) -> list[WeighedTree]:
        """The rule with the largest share of a span's trees, from the root down; often not the best tree.

        In normal form, only the rules that are allowed there compete.
        """
        rules = self.rule_probabilities().detach()
        return [self._greedy(b, rules[b]) for b in range(len(self.scores))]

    def _greedy(self, sentence: int, rules: Tensor) -> WeighedTree:
        tree = self._greedy_tree(0, self.lengths[sentence], rules)
        log_prob = self.log_probs(sentence)[self.trees(sentence).index(tree)]
        return WeighedTree(tree, float(log_prob.detach()))

    def _greedy_tree(
        self, start: int, end: int, rules: Tensor, forbidden: Rule | None = None
    ) -> EnumeratedTree:
        if end == start + 1:
            return EnumeratedTree(start, end)
        split_index = packed_splits(self.size)
        options = [(middle, rule) for middle in range(start + 1, end) for rule in RULES if rule != forbidden]
        middle, rule = max(
            options,
            key=lambda option: float(rules[split_index[start, option[0], end], RULES.index(option[1])]),
        )
        left = self._greedy_tree(start, middle, rules, rule if self.normal_form else None)
        return EnumeratedTree(start, end, rule, (left, self._greedy_tree(middle, end, rules)))

    def most_probable_order(self) -> EnumeratedOrders:
        """The most probable of all separable orders, each with its trees summed."""
        orders, values = [], []
        for sentence in range(len(self.scores)):
            scored = self.order_log_probs(sentence)
            orders.append(max(scored, key=lambda order: float(scored[order].detach())))
            values.append(scored[orders[-1]].detach())
        best = torch.stack(values)
        return EnumeratedOrders(torch.tensor(orders), best, torch.zeros_like(best))

    def log_likelihood(self, emissions: Tensor) -> Tensor:
        """``(batch,)``: log of the mean over trees of the product of ``exp(emissions[token, position])``."""
        values = []
        for sentence, length in enumerate(self.lengths):
            orders = torch.tensor([tree.order for tree in self.trees(sentence)])  # (tree, position)
            emitted = emissions[sentence][orders, torch.arange(length)].sum(-1)  # (tree,)
            values.append((self.log_probs(sentence) + emitted).logsumexp(0))
        return torch.stack(values)

    def entropy(self) -> Tensor:
        """``(batch,)``: the entropy of trees; in normal form these are permutations."""
        return self.kl_divergence(None)

    def kl_divergence(self, other: "EnumeratedPermutation | None") -> Tensor:
        """``(batch,)``: the mean of ``log p - log q`` over trees (of ``-log p`` when there is no other)."""
        values = []
        for sentence in range(len(self.scores)):
            ours = self.log_probs(sentence)
            difference = -ours if other is None else ours - other.log_probs(sentence)
            values.append((ours.exp() * difference).sum())
        return torch.stack(values)

    def enumerate_support(self) -> Tensor:
        """Every separable order, ``(cardinality, batch, position)``, sorted; all lengths must be equal."""
        if len(set(self.lengths)) > 1:
            raise ValueError(
                f"lengths are {self.lengths}, but only sentences of equal length have the same support."
            )
        orders = torch.tensor(sorted({self.padded(tree.order) for tree in self.trees(0)}))
        return orders[:, None].expand(-1, len(self.scores), -1)


@cache
def _used_splits(start: int, end: int, normal_form: bool, size: int) -> Tensor:
    """For every tree over a span the indices of its splits in flattened scores, ``(tree, width - 1)``."""
    split_index = packed_splits(size)
    used = [
        [2 * split_index[i, j, k] + RULES.index(rule) for i, j, k, rule in sorted(tree.splits)]
        for tree in all_trees(start, end, normal_form)
    ]
    return torch.tensor(used, dtype=torch.int64)
