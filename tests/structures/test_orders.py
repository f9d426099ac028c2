"""The support of distributions over orders."""

import torch

from permalign.structures.orders import SeparableOrders


def test_every_row_is_checked_by_itself():
    rows = torch.tensor(
        [
            [[0, 1, 2, 3], [1, 3, 0, 2], [0, 0, 1, 2]],  # separable, the pattern 2413, no permutation
            [[2, 0, 3, 1], [3, 2, 1, 0], [1, 2, 3, 4]],  # the pattern 3142, separable, no permutation
        ]
    )
    expected = torch.tensor([[True, False, False], [False, True, False]])
    assert SeparableOrders().check(rows).equal(expected)
