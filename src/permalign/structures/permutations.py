"""Permutations, and the separable ones among them: checks, conversions, lists and counts.

A permutation is an *order*: ``order[position] = token``, the token that stands there after reordering. An order is
separable if a binary tree over the tokens yields it, each of whose nodes is straight (its right part follows its left
part) or inverted (its right part comes first); equivalently, if it contains neither of the patterns 2413 and 3142.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from math import comb

import torch
from torch import Tensor


def check_order(order: Sequence[int]) -> tuple[int, ...]:
    """The order as a tuple of int, or a `ValueError` when it does not hold each of ``0..n-1`` exactly once.

    >>> check_order([1, 0, 2])
    (1, 0, 2)
    """
    tokens = tuple(int(token) for token in order)
    if sorted(tokens) != list(range(len(tokens))):
        raise ValueError(
            f"order {tokens} is not a permutation: it must hold each of 0..{len(tokens) - 1} exactly once. "
            "Count tokens from zero, and leave none out."
        )
    return tokens


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The position of every token: ``inverse(order)[order[position]] == position``.

    >>> inverse((2, 0, 1))
    (1, 2, 0)
    """
    tokens = check_order(order)
    return tuple(sorted(range(len(tokens)), key=tokens.__getitem__))


def permutation_matrix(order: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """The matrix ``M[position, token]`` with ``M @ states`` the reordered states.

    >>> permutation_matrix((2, 0, 1), dtype=torch.int64)
    tensor([[0, 0, 1],
            [1, 0, 0],
            [0, 1, 0]])
    """
    tokens = check_order(order)
    return torch.eye(len(tokens), dtype=dtype)[list(tokens)]


def is_separable(order: Sequence[int]) -> bool:
    """Whether some tree of straight and inverted nodes yields the order. O(n).

    Shift the tokens one by one onto a stack of intervals, and merge the two on top whenever they touch; the order is
    separable if and only if one interval is left. (Merging early does no harm: if two neighbouring intervals touch,
    every tree of the order can be rearranged so that they are siblings.)

    >>> is_separable((1, 3, 2, 0)), is_separable((1, 3, 0, 2)), is_separable((2, 0, 3, 1))
    (True, False, False)
    """
    stack: list[tuple[int, int]] = []
    for token in check_order(order):
        low, high = token, token
        while stack and (stack[-1][1] + 1 == low or high + 1 == stack[-1][0]):
            below_low, below_high = stack.pop()
            low, high = min(low, below_low), max(high, below_high)
        stack.append((low, high))
    return len(stack) <= 1


def separable_permutations(length: int) -> Iterator[tuple[int, ...]]:
    """All separable orders of a length, in lexicographic order; each is built once, from the cut nearest its start.

    >>> len(list(separable_permutations(4))), separable_count(4)
    (22, 22)
    """
    straight, inverted = _orders_by_rule(length)
    return iter(sorted([*straight, *inverted] if length > 1 else [tuple(range(length))]))


@cache
def _orders_by_rule(length: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The orders whose topmost node is straight, and those whose topmost node is inverted.

    The left part never has the rule of the whole (otherwise the cut could be made earlier), so that every order is
    listed exactly once.
    """
    straight, inverted = [], []
    for cut in range(1, length):
        left_straight, left_inverted = _orders_by_rule(cut) if cut > 1 else ([(0,)], [(0,)])
        right = [*chain(*_orders_by_rule(length - cut))] if length - cut > 1 else [(0,)]
        shifted = [tuple(token + cut for token in order) for order in right]
        straight += [first + second for first in left_inverted for second in shifted]
        inverted += [second + first for first in left_straight for second in shifted]
    return straight, inverted


def large_schroeder(index: int) -> int:
    """The large Schröder numbers, ``(n+1) S(n) = (6n-3) S(n-1) - (n-2) S(n-2)``.

    >>> [large_schroeder(index) for index in range(7)]
    [1, 2, 6, 22, 90, 394, 1806]
    """
    if index < 0:
        raise ValueError(
            f"index is {index}, but the Schröder numbers begin at 0. Pass an index of 0 or more."
        )
    before, current = 1, 1  # S(-1) does not exist; with 1 in its place, the recurrence yields S(1) = 2
    for n in range(1, index + 1):
        before, current = current, ((6 * n - 3) * current - (n - 2) * before) // (n + 1)
    return current


def separable_count(length: int) -> int:
    """How many orders of a length are separable: ``large_schroeder(length - 1)``.

    >>> [separable_count(length) for length in range(1, 8)]
    [1, 2, 6, 22, 90, 394, 1806]
    """
    return large_schroeder(length - 1)


def derivation_count(length: int) -> int:
    """How many trees there are over a length, ``Catalan(n-1) * 2^(n-1)``: a shape, and a rule for every node.

    >>> [derivation_count(length) for length in range(1, 7)]
    [1, 2, 8, 40, 224, 1344]
    """
    nodes = length - 1
    if nodes < 0:
        raise ValueError(f"length is {length}, but a tree has at least one leaf. Pass a length of 1 or more.")
    return comb(2 * nodes, nodes) // (nodes + 1) << nodes
