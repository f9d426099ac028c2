"""The support of distributions over orders."""

import pytest
import torch

from permalign import SeparablePermutation
from permalign.structures.orders import SeparableOrders


def test_orders_of_ten_words_can_be_listed_but_not_of_eleven():
    def of(length):
        return SeparablePermutation(torch.zeros(1, (length**3 - length) // 6, 2))

    assert len(of(10).enumerate_support()) == 206_098
    with pytest.raises(ValueError, match="a sentence of 11 words has too many orders to list"):
        of(11).enumerate_support()


def test_every_row_is_checked_by_itself():
    rows = torch.tensor(
        [
            [[0, 1, 2, 3], [1, 3, 0, 2], [0, 0, 1, 2]],  # separable, the pattern 2413, no permutation
            [[2, 0, 3, 1], [3, 2, 1, 0], [1, 2, 3, 4]],  # the pattern 3142, separable, no permutation
        ]
    )
    expected = torch.tensor([[True, False, False], [False, True, False]])
    assert SeparableOrders().check(rows).equal(expected)
