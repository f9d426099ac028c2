"""What traces ask of a distribution over orders, whatever grammar it has."""

from collections.abc import Sequence
from math import log
from typing import Any, Protocol

import torch
from torch import Tensor

from permalign.explain.labelled import labelled_log_prob, sample_labelled
from permalign.explain.trace.records import Judge
from permalign.kernels.layout import length_of_split_count
from permalign.structures import Derivation, LabelledPermutation, ProbableOrder, SeparablePermutation, Tree
from permalign.structures.derivations import RULES, Rule
from permalign.structures.inspection import (
    derivation_of_order,
    log_prob_of_tree,
    sample_derivations,
    span_options,
)

SEARCHED = 200
"""How many derivations are looked at to find the most probable order, or one of a given order where no chart does."""


class OrderDistribution(Protocol):
    """Derivations of sentences and, through them, orders; `SeparablePermutation` for one."""

    def double(self) -> "OrderDistribution":
        """The same in double precision."""
        ...

    def entropy(self) -> Tensor:
        """Of derivations, in nats."""
        ...

    def expected_matrix(self) -> Tensor:
        """``(batch, position, token)``"""
        ...

    def rule_marginals(self) -> Tensor:
        """``(batch, splits, 2)``"""
        ...

    def log_prob(self, value: Tensor) -> Tensor:
        """Of orders, summed over their derivations."""
        ...

    def sample(self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None) -> Tensor:
        """Orders."""
        ...

    def greedy_derivation(self) -> list[Derivation]:
        """The locally best options."""
        ...

    def best_derivation(self) -> list[Derivation]:
        """The most probable ones."""
        ...

    def top_derivations(self, k: int) -> list[list[Derivation]]:
        """The k most probable ones, best first."""
        ...

    def most_probable_order(self, derivations: int = 1000) -> ProbableOrder:
        """Summed over derivations."""
        ...


def option_weights(distribution: OrderDistribution) -> Tensor:
    """``(splits, 2)`` of a single sentence: in proportion to how probable each option is, given its span."""
    if isinstance(distribution, SeparablePermutation):
        return distribution.rule_probabilities()[0]
    return distribution.rule_marginals()[0]


def judge_of(rules: Tensor) -> Judge:
    """Probabilities and entropies of a tree's nodes, by (weights of) the options of all spans, ``(splits, 2)``."""
    words = length_of_split_count(rules.shape[0]) or 1

    def judge(node: Tree, forbidden: Rule | None) -> tuple[float, float]:
        options = span_options(rules, words, node.start, node.end, forbidden).double()
        middle = node.children[0].end - node.start - 1
        rule = RULES.index(node.rule) if node.rule is not None else 0
        entropy = -torch.special.xlogy(options, options).sum() / log(2)
        return round(float(options[middle, rule]), 6), round(abs(float(entropy)), 6)

    return judge


def tree_log_prob(distribution: OrderDistribution | None, derivation: Derivation) -> float | None:
    """Of the tree alone: a derivation found together with an output's segments tells the probability of both.

    None where that is all there is.
    """
    if isinstance(distribution, SeparablePermutation):
        return log_prob_of_tree(distribution, derivation.tree)
    if not hasattr(derivation, "segments"):
        return derivation.log_prob
    return (
        labelled_log_prob(distribution, derivation.tree)
        if isinstance(distribution, LabelledPermutation)
        else None
    )


def searched(distribution: OrderDistribution) -> int:
    """How many derivations to look at: fewer for a long sentence with labels, where each takes its time."""
    if isinstance(distribution, LabelledPermutation):
        return min(SEARCHED, max(20, 1000 // distribution.words))
    return SEARCHED


def tree_of_order(distribution: OrderDistribution, order: Sequence[int]) -> Derivation | None:
    """The most probable derivation of an order; None if there is none, or none was found among the best."""
    if isinstance(distribution, SeparablePermutation):
        return derivation_of_order(distribution, order)
    wanted = tuple(order)
    found = distribution.top_derivations(searched(distribution))[0]
    return next((one for one in found if one.order == wanted), None)


def draw(
    distribution: OrderDistribution, count: int, generator: torch.Generator
) -> list[tuple[tuple[int, ...], Derivation | None]]:
    """Sampled orders with their trees: the sampled ones, or else the best of each order."""
    if isinstance(distribution, SeparablePermutation):
        return [(one.order, one) for one in sample_derivations(distribution, count, generator)]
    if isinstance(distribution, LabelledPermutation):
        return [(one.order, one) for one in sample_labelled(distribution, count, generator)]
    orders = [tuple(order) for order in distribution.sample((count,), generator)[:, 0].tolist()]
    trees: dict[Any, Derivation | None] = {order: tree_of_order(distribution, order) for order in set(orders)}
    return [(order, trees[order]) for order in orders]
