from itertools import combinations, permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from permalign.structures.brute_force import all_trees
from permalign.structures.permutations import (
    derivation_count,
    inverse,
    is_separable,
    large_schroeder,
    permutation_matrix,
    separable_count,
    separable_permutations,
)


def contains(order, pattern):
    """Whether some tokens of the order, read from left to right, rank like the pattern."""
    ranks = [sorted(chosen).index for chosen in combinations(order, len(pattern))]
    return any(
        tuple(map(rank, chosen)) == pattern
        for rank, chosen in zip(ranks, combinations(order, len(pattern)), strict=True)
    )


@pytest.mark.parametrize("length", range(1, 8))
def test_separable_means_free_of_2413_and_3142(length):
    free = {
        order
        for order in permutations(range(length))
        if not contains(order, (1, 3, 0, 2)) and not contains(order, (2, 0, 3, 1))
    }
    assert set(separable_permutations(length)) == free
    assert {order for order in permutations(range(length)) if is_separable(order)} == free
    assert len(free) == separable_count(length)


@pytest.mark.parametrize("length", range(1, 7))
def test_trees_yield_the_separable_orders(length):
    plain, normal = all_trees(0, length), all_trees(0, length, normal_form=True)
    assert len(plain) == derivation_count(length)
    assert {tree.order for tree in plain} == set(separable_permutations(length))
    assert sorted(tree.order for tree in normal) == sorted(separable_permutations(length))


def test_the_first_counts():
    assert [separable_count(length) for length in range(1, 8)] == [1, 2, 6, 22, 90, 394, 1806]
    assert [derivation_count(length) for length in range(1, 7)] == [1, 2, 8, 40, 224, 1344]


@given(st.permutations(range(7)))
def test_inverse_and_matrix(order):
    back = inverse(order)
    assert [order[position] for position in back] == list(range(7))
    assert inverse(back) == tuple(order)
    matrix = permutation_matrix(order, torch.float64)
    tokens = torch.arange(7, dtype=torch.float64)
    assert (matrix @ tokens).tolist() == list(order)
    assert torch.equal(matrix.T, permutation_matrix(back, torch.float64))


@given(st.permutations(range(7)))
def test_separable_orders_stay_so_when_inverted_or_reversed(order):
    assert is_separable(order) == is_separable(inverse(order)) == is_separable(order[::-1])


@pytest.mark.parametrize("order", [(0, 0), (1, 2), (0, 2), (-1, 0)])
def test_what_is_no_permutation_is_refused(order):
    with pytest.raises(ValueError, match="not a permutation"):
        is_separable(order)


@pytest.mark.parametrize(
    ("function", "number"), [(large_schroeder, -1), (separable_count, 0), (derivation_count, 0)]
)
def test_counts_of_nothing_are_refused(function, number):
    with pytest.raises(ValueError, match="or more"):
        function(number)
