"""Labelled derivations of one sentence from the best downwards, computed only as far as they are asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from permalign.kernels.layout import by_ends, split_index
from permalign.structures.derivations import RULES, Derivation, Tree

Item = tuple[int, int, int]  # start, end, label; label -1 is the root over all of them


class _Option(NamedTuple):
    """A way to build an item; heaps pop the smallest, so it begins with minus its weight."""

    cost: float
    middle: int
    orientation: int
    left_label: int
    right_label: int
    left_rank: int
    right_rank: int


@dataclass
class _Cell:
    found: list[_Option] = field(default_factory=list)
    heap: list[_Option] = field(default_factory=list)
    seen: set[tuple[int, ...]] = field(default_factory=set)


def weighed_derivations(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    nodes: Tensor,
    leaves: Tensor,
    lengths: Tensor,
    log_partitions: Tensor,
) -> list[Derivation]:
    """One derivation for each sentence, from its nodes ``(batch, n - 1, 5)`` and leaves' labels ``(batch, n)``."""
    derivations = []
    for row, length in enumerate(lengths.tolist()):
        inner, labels = nodes[row, : length - 1], leaves[row, :length]
        tree = Tree.from_nodes(inner.tolist(), length, labels.tolist())
        start, middle, end, orientation, _ = inner.unbind(-1)
        weight = splits[row, split_index(tokens.shape[1], start, middle, end), orientation].sum()
        weight = weight + tokens[row, torch.arange(length, device=labels.device), labels].sum()
        weight = weight + root[tree.label or 0]
        for node in tree.nodes():
            if node.rule is not None:
                left, right = node.children
                weight = weight + rules[RULES.index(node.rule), node.label, left.label, right.label]
        log_prob = min(0.0, float(weight - log_partitions[row]))
        derivations.append(Derivation(tree, tree.order, log_prob))
    return derivations


def derivations_of(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, chart: Tensor, log_partition: float
) -> Iterator[Derivation]:
    """All labelled derivations of a single sentence, best first.

    Args:
        rules: ``(2, K, K, K)``; ``root`` ``(K,)``, ``tokens`` ``(1, n, K)`` and ``splits`` ``(1, T, 2)`` likewise.
        chart: the best weights of spans by label, ``(1, spans, K)``.
        log_partition: of all derivations.
    """
    search = _BestFirst(rules, root, tokens[0], splits[0], chart)
    rank = 0
    while (weight := search.weight(search.root, rank)) is not None:
        tree = search.tree(rank)
        yield Derivation(tree, tree.order, min(0.0, weight - log_partition))
        rank += 1


class _BestFirst:
    """Lazy enumeration (Huang and Chiang, 2005, algorithm 3): an item's k-th best comes from its children's.

    An item is a span with a label, its options are (split point, orientation, left label, right label): 2 (w-1) K^2 of
    them. The root is one more item, whose options are its label alone.
    """

    def __init__(self, rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, chart: Tensor) -> None:
        self._rules, self._root, self._splits, self._tokens = rules, root, splits, tokens
        self._words, self._labels = tokens.shape
        left, right = by_ends(chart, self._words)
        self._left, self._right = left[0], right[0]  # [end, width, label]
        self._cells: dict[Item, _Cell] = {}
        self.root = (0, self._words, -1)

    def _open(self, item: Item) -> _Cell:
        start, end, label = item
        cell = _Cell()
        if label < 0:
            tops = (self._root + self._left[0, self._words]).tolist()
            cell.heap = [_Option(-weight, 0, 0, top, 0, 0, 0) for top, weight in enumerate(tops)]
        else:
            width = end - start
            left = self._left[start, 1:width][:, None, :, None]
            right = self._right[end, 1:width].flip(0)[:, None, None]
            weights = self._of_split(start, end)[..., None, None] + left + right + self._rules[:, label]
            places = product(range(start + 1, end), range(2), range(self._labels), range(self._labels))
            costs = (-weights).flatten().tolist()
            cell.heap = [
                _Option(cost, middle, orientation, left_label, right_label, 0, 0)
                for cost, (middle, orientation, left_label, right_label) in zip(costs, places, strict=True)
            ]
        heapify(cell.heap)
        self._cells[item] = cell
        return cell

    def _of_split(self, start: int, end: int) -> Tensor:
        middle = torch.arange(start + 1, end, device=self._splits.device)
        ends = torch.full_like(middle, start), middle, torch.full_like(middle, end)
        return self._splits[split_index(self._words, *ends)]

    def _children(self, item: Item, option: _Option) -> tuple[Item, ...]:
        start, end, label = item
        if label < 0:
            return ((start, end, option.left_label),)
        return (start, option.middle, option.left_label), (option.middle, end, option.right_label)

    def _own_weight(self, item: Item, option: _Option) -> float:
        """What an option weighs without its children."""
        start, end, label = item
        if label < 0:
            return float(self._root[option.left_label])
        rule = self._rules[option.orientation, label, option.left_label, option.right_label]
        return float(rule + self._of_split(start, end)[option.middle - start - 1, option.orientation])

    def weight(self, item: Item, rank: int) -> float | None:
        """The weight of the item's rank-th best derivation, or None if it has fewer."""
        start, end, label = item
        if end - start == 1 and label >= 0:
            return float(self._tokens[start, label]) if rank == 0 else None
        cell = self._cells.get(item) or self._open(item)
        while len(cell.found) <= rank:
            if cell.found:
                self._push_successors(item, cell, cell.found[-1])
            if not cell.heap:
                return None
            cell.found.append(heappop(cell.heap))
        return -cell.found[rank].cost

    def _push_successors(self, item: Item, cell: _Cell, option: _Option) -> None:
        children = self._children(item, option)
        own = self._own_weight(item, option)
        for more in ((1, 0), (0, 1))[: len(children)]:
            ranks = (option.left_rank + more[0], option.right_rank + more[1])
            key = (*option[1:5], *ranks)
            if key in cell.seen:
                continue
            cell.seen.add(key)
            weights = [self.weight(child, rank) for child, rank in zip(children, ranks, strict=False)]
            known = [weight for weight in weights if weight is not None]
            if len(known) == len(children):
                heappush(cell.heap, _Option(-(own + sum(known)), *option[1:5], *ranks))

    def tree(self, rank: int) -> Tree:
        """A derivation already found."""
        top = self._cells[self.root].found[rank]
        return self._tree((0, self._words, top.left_label), top.left_rank)

    def _tree(self, item: Item, rank: int) -> Tree:
        nodes, leaves, waiting = [], {}, [(item, rank)]
        while waiting:
            current, current_rank = waiting.pop()
            start, end, label = current
            if end - start == 1:
                leaves[start] = label
                continue
            self.weight(current, current_rank)
            option = self._cells[current].found[current_rank]
            nodes.append((start, option.middle, end, option.orientation, label))
            left, right = self._children(current, option)
            waiting.append((right, option.right_rank))
            waiting.append((left, option.left_rank))
        return Tree.from_nodes(nodes, self._words, [leaves[token] for token in range(self._words)])
