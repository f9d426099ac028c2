"""Derivations of one sentence from the best downwards, computed only as far as they are asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from permalign.kernels.layout import split_offset

Span = tuple[int, int, int]  # start, end, and the rule it may not use (-1: none)
Node = tuple[int, int, int, int]  # start, middle, end, rule


class _Option(NamedTuple):
    """A way to build a span; heaps pop the smallest, so it begins with minus its weight."""

    cost: float
    middle: int
    rule: int
    left_rank: int
    right_rank: int


@dataclass
class _Cell:
    found: list[_Option] = field(default_factory=list)
    heap: list[_Option] = field(default_factory=list)
    seen: set[tuple[int, ...]] = field(default_factory=set)


class BestFirst:
    """Lazy enumeration (Huang and Chiang, 2005, algorithm 3): the k-th best of a span comes from its children's.

    After the Viterbi chart, O(n) heaps are opened for the first derivation and few for every further one.

    Args:
        scores: of every split and rule, packed.
        best: the weight of the best derivation through each of them (`permalign.kernels.best_inside`).
        words: the length of the sentence.
        normal_form: whether a left child may not repeat its parent's rule.
    """

    def __init__(
        self, scores: list[list[float]], best: list[list[float]], words: int, normal_form: bool
    ) -> None:
        self._scores, self._best, self._words, self._normal_form = scores, best, words, normal_form
        self._cells: dict[Span, _Cell] = {}

    def __iter__(self) -> Iterator[tuple[float, list[Node]]]:
        """Weights and pre-order nodes of all derivations, best first."""
        root, rank = (0, self._words, -1), 0
        while (weight := self._weight(root, rank)) is not None:
            yield weight, self._nodes(root, rank)
            rank += 1

    def _children(self, span: Span, option: _Option) -> tuple[Span, Span]:
        start, end, _ = span
        left_forbidden = option.rule if self._normal_form else -1
        return (start, option.middle, left_forbidden), (option.middle, end, -1)

    def _first_split(self, start: int, end: int) -> int:
        return split_offset(self._words, end - start) + start * (end - start - 1)

    def _open(self, span: Span) -> _Cell:
        start, end, forbidden = span
        first = self._first_split(start, end)
        cell = _Cell()
        for middle in range(start + 1, end):
            for rule in (0, 1):
                if rule != forbidden:
                    cost = -self._best[first + middle - start - 1][rule]
                    cell.heap.append(_Option(cost, middle, rule, 0, 0))
        heapify(cell.heap)
        self._cells[span] = cell
        return cell

    def _weight(self, span: Span, rank: int) -> float | None:
        """The weight of the span's rank-th best derivation, or None if it has fewer."""
        start, end, _ = span
        if end - start == 1:
            return 0.0 if rank == 0 else None
        cell = self._cells.get(span) or self._open(span)
        while len(cell.found) <= rank:
            if cell.found:
                option = cell.found[-1]
                left, right = self._children(span, option)
                place = self._first_split(start, end) + option.middle - start - 1
                score = self._scores[place][option.rule]
                for more_left, more_right in ((1, 0), (0, 1)):
                    ranks = option.left_rank + more_left, option.right_rank + more_right
                    key = (option.middle, option.rule, *ranks)
                    if key in cell.seen:
                        continue
                    cell.seen.add(key)
                    left_weight, right_weight = self._weight(left, ranks[0]), self._weight(right, ranks[1])
                    if left_weight is not None and right_weight is not None:
                        cost = -(score + left_weight + right_weight)
                        heappush(cell.heap, _Option(cost, option.middle, option.rule, *ranks))
            if not cell.heap:
                return None
            cell.found.append(heappop(cell.heap))
        return -cell.found[rank].cost

    def _nodes(self, span: Span, rank: int) -> list[Node]:
        """The internal nodes of a derivation already found, in pre-order."""
        nodes, waiting = [], [(span, rank)]
        while waiting:
            current, current_rank = waiting.pop()
            start, end, _ = current
            if end - start == 1:
                continue
            self._weight(current, current_rank)
            option = self._cells[current].found[current_rank]
            nodes.append((start, option.middle, end, option.rule))
            left, right = self._children(current, option)
            waiting.append((right, option.right_rank))
            waiting.append((left, option.left_rank))
        return nodes
