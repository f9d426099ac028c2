"""Every tree over a sentence, written out: what charts sum over without ever listing it."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

Rule = Literal["S", "I"]
RULES: tuple[Rule, Rule] = ("S", "I")  # in the order of the last axis of the scores


@dataclass(frozen=True)
class EnumeratedTree:
    """A leaf (one token, no rule), or a rule over a left and a right tree."""

    start: int
    end: int
    rule: Rule | None = None
    children: tuple["EnumeratedTree", ...] = ()

    @property
    def order(self) -> tuple[int, ...]:
        """Tokens in the order the tree puts them in: straight keeps the two parts, inverted swaps them.

        >>> leaf = lambda token: EnumeratedTree(token, token + 1)
        >>> EnumeratedTree(0, 2, "I", (leaf(0), leaf(1))).order
        (1, 0)
        """
        if self.rule is None:
            return (self.start,)
        left, right = self.children
        return left.order + right.order if self.rule == "S" else right.order + left.order

    @property
    def splits(self) -> frozenset[tuple[int, int, int, Rule]]:
        """The triples ``(i, j, k)`` of all nodes with their rules; two trees are equal if these are."""
        if self.rule is None:
            return frozenset()
        left, right = self.children
        return frozenset({(self.start, left.end, self.end, self.rule)}) | left.splits | right.splits


@cache
def all_trees(start: int, end: int, normal_form: bool = False) -> tuple[EnumeratedTree, ...]:
    """Every tree over the tokens ``start..end-1``.

    In normal form no node has the rule of its left child, so that there is one tree for every separable order.

    >>> [len(all_trees(0, length)) for length in range(1, 6)]
    [1, 2, 8, 40, 224]
    >>> [len(all_trees(0, length, normal_form=True)) for length in range(1, 6)]
    [1, 2, 6, 22, 90]
    """
    if end == start + 1:
        return (EnumeratedTree(start, end),)
    return tuple(
        EnumeratedTree(start, end, rule, (left, right))
        for middle in range(start + 1, end)
        for left in all_trees(start, middle, normal_form)
        for right in all_trees(middle, end, normal_form)
        for rule in RULES
        if not (normal_form and left.rule == rule)
    )


@cache
def packed_splits(length: int) -> dict[tuple[int, int, int], int]:
    """The index of every split ``(i, j, k)`` in packed scores: by width ``k - i``, then ``i``, then ``j``.

    >>> packed_splits(3)
    {(0, 1, 2): 0, (1, 2, 3): 1, (0, 1, 3): 2, (0, 2, 3): 3}
    """
    splits = [
        (start, middle, end) for end in range(length + 1) for middle in range(end) for start in range(middle)
    ]
    splits.sort(key=lambda split: (split[2] - split[0], split[0], split[1]))
    return {split: index for index, split in enumerate(splits)}


def length_of_packed(split_count: int) -> int:
    """The length ``n`` with ``(n^3 - n) / 6`` splits; no splits at all means one token.

    >>> length_of_packed(0), length_of_packed(4), length_of_packed(10)
    (1, 3, 4)
    """
    length = 1
    while (length**3 - length) // 6 < split_count:
        length += 1
    if (length**3 - length) // 6 != split_count:
        raise ValueError(
            f"{split_count} splits belong to no length: expected (n^3 - n) / 6 = 0, 1, 4, 10, 20, ..."
        )
    return length
