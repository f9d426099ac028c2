"""The k best trees of a sentence, computed lazily, and a search for the most probable order among them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from math import exp
from typing import NamedTuple

from torch import Tensor

from permalign.structures.derivations import Derivation, Tree

Order = tuple[int, ...]
Item = tuple[int, ...]  # a span, with what its grammar needs to know about it (a label, say)
Choice = tuple[
    int, ...
]  # one way to build an item: where it is split, by which rule, into which smaller items


class Forest(ABC):
    """All trees of one sentence with their weights, packed: items, and the choices by which each is built.

    Attributes:
        root: the item that stands for whole trees.
    """

    root: Item

    @abstractmethod
    def leaf_weight(self, item: Item) -> float | None:
        """The weight of an item that is not built of others; None for any other item."""

    @abstractmethod
    def choices(self, item: Item) -> Iterator[tuple[float, Choice]]:
        """Every choice for an item, with the weight of the best tree that begins with it; best first.

        Choices with the same weight come in their own order.
        """

    @abstractmethod
    def children(self, item: Item, choice: Choice) -> tuple[Item, ...]:
        """The items that a choice puts together, one or two, left one first."""

    @abstractmethod
    def weight(self, item: Item, choice: Choice, children: Sequence[float]) -> float:
        """The weight of a tree that begins with this choice, from the weights of the trees below it."""

    @abstractmethod
    def tree(self, steps: Sequence[tuple[Item, Choice | None]]) -> Tree:
        """The tree of items and choices in pre-order; a leaf has no choice."""


class _Candidate(NamedTuple):
    """A tree of an item. A heap pops its smallest entry, so it begins with minus the weight; the choice breaks ties."""

    cost: float
    choice: Choice
    ranks: tuple[
        int, int
    ]  # the ranks of its left and of its right subtree among those of the children; 0 is the best


@dataclass
class _Ranking:
    """The trees of one item that are known so far.

    Attributes:
        choices: the choices whose best trees are no candidates yet, best first.
        found: the best trees, in order.
        heap: candidates for the next best.
        seen: the choices and ranks that have been pushed as successors.
    """

    choices: Iterator[tuple[float, Choice]]
    heap: list[_Candidate] = field(default_factory=list)
    found: list[_Candidate] = field(default_factory=list)
    seen: set[tuple[Choice, tuple[int, int]]] = field(default_factory=set)


class BestFirst:
    """Lazy k-best search (Huang and Chiang, 2005, algorithm 3): an item's k-th best tree comes from its children's.

    Given the Viterbi chart, the first tree opens O(n) heaps, and each further tree opens few.
    """

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self._rankings: dict[Item, _Ranking] = {}

    def __iter__(self) -> Iterator[tuple[float, Tree]]:
        """Weights and trees of a whole forest, best first."""
        rank = 0
        while (weight := self._weight(self._forest.root, rank)) is not None:
            yield weight, self._forest.tree(self._steps(rank))
            rank += 1

    def _weight(self, item: Item, rank: int) -> float | None:
        """The weight of the item's tree of that rank, or None if it has fewer."""
        leaf = self._forest.leaf_weight(item)
        if leaf is not None:
            return leaf if rank == 0 else None
        ranking = self._rankings.get(item) or self._open(item)
        while len(ranking.found) <= rank:
            if ranking.found:
                self._push_successors(item, ranking)
            if not ranking.found or ranking.found[-1].ranks == (0, 0):
                self._push_next_choice(ranking)
            if not ranking.heap:
                return None
            ranking.found.append(heappop(ranking.heap))
        return -ranking.found[rank].cost

    def _open(self, item: Item) -> _Ranking:
        ranking = self._rankings[item] = _Ranking(self._forest.choices(item))
        return ranking

    def _push_next_choice(self, ranking: _Ranking) -> None:
        """Push the best tree of the next choice; those of later choices are no better."""
        for weight, choice in islice(ranking.choices, 1):
            heappush(ranking.heap, _Candidate(-weight, choice, (0, 0)))

    def _push_successors(self, item: Item, ranking: _Ranking) -> None:
        """Push the successors of the last tree found: the same choice with the next best left, or right, subtree."""
        _, choice, (left, right) = ranking.found[-1]
        children = self._forest.children(item, choice)
        for ranks in ((left + 1, right), (left, right + 1))[: len(children)]:
            if (choice, ranks) in ranking.seen:
                continue
            ranking.seen.add((choice, ranks))
            weights = [self._weight(child, rank) for child, rank in zip(children, ranks, strict=False)]
            known = [weight for weight in weights if weight is not None]
            if len(known) == len(children):
                cost = -self._forest.weight(item, choice, known)
                heappush(ranking.heap, _Candidate(cost, choice, ranks))

    def _steps(self, rank: int) -> list[tuple[Item, Choice | None]]:
        """Items and choices, in pre-order, of a whole tree that has been found."""
        steps: list[tuple[Item, Choice | None]] = []
        waiting = [(self._forest.root, rank)]
        while waiting:
            item, item_rank = waiting.pop()
            if self._forest.leaf_weight(item) is not None:
                steps.append((item, None))
                continue
            # the weight of the best tree of a choice is known from the chart, before its subtrees have been ranked
            self._weight(item, item_rank)
            candidate = self._rankings[item].found[item_rank]
            steps.append((item, candidate.choice))
            children = self._forest.children(item, candidate.choice)
            waiting += reversed(list(zip(children, candidate.ranks, strict=False)))
        return steps


class ProbableOrder(NamedTuple):
    """What `OrderDistribution.most_probable_order` found for every sentence of the batch.

    Attributes:
        order: ``(batch, n)``, the most probable order found.
        log_prob: ``(batch,)``, its log-probability.
        gap: ``(batch,)``, by how much the probability of any other order could exceed it; 0 when it is proven best.
    """

    order: Tensor
    log_prob: Tensor
    gap: Tensor


def search_order(
    ranked: Iterator[Derivation],
    log_probs_of: Callable[[list[Order]], list[float]],
    limit: int,
    normal_form: bool,
) -> tuple[Order, float, float]:
    """The most probable order of a sentence, its log-probability, and the gap: how much more another order could have.

    It takes derivations in portions of growing size, scores the new orders among them, and stops when the best order is
    at least as probable as all orders that have not been scored together. In normal form an order has one derivation,
    so the first derivation has the most probable order.

    Args:
        ranked: the sentence's derivations, best first.
        log_probs_of: a function that gives the exact log-probabilities of orders.
        limit: the number of derivations to look at.
        normal_form: whether every order has exactly one derivation.
    """
    if normal_form:
        best = next(ranked)
        return best.order, best.log_prob, 0.0
    ranked, portion = islice(ranked, limit), 1
    log_probs: dict[Order, float] = {}
    best_order: Order = ()
    gap = 1.0
    while gap > 0 and (derivations := list(islice(ranked, portion))):
        orders = dict.fromkeys(derivation.order for derivation in derivations)
        new = [order for order in orders if order not in log_probs]
        if new:
            log_probs |= zip(new, log_probs_of(new), strict=True)
            best_order = max(log_probs, key=log_probs.__getitem__)
            unseen = 1.0 - sum(map(exp, log_probs.values()))
            gap = max(0.0, unseen - exp(log_probs[best_order]))
        # every order is scored on a copy of the scores, O(n^3), so long sentences take smaller portions
        portion = min(2 * portion, 256, max(1, 20_000_000 // len(best_order) ** 3))
    return best_order, min(0.0, log_probs[best_order]), gap
