"""Discrete orders: applying them to states, and their permutation matrices."""

import torch
from torch import Tensor

from permalign.shapes import Float, Int


def take_order(
    states: Float[Tensor, "batch n width"], order: Int[Tensor, "batch n"]
) -> Float[Tensor, "batch n width"]:
    """Put states into an order: position p holds the state of token ``order[p]``.

    >>> take_order(torch.tensor([[[7.0], [8.0], [9.0]]]), torch.tensor([[2, 0, 1]])).flatten()
    tensor([9., 7., 8.])
    """
    return states.gather(1, order[..., None].expand_as(states))


def matrix_of_order(order: Int[Tensor, "batch n"], like: Tensor) -> Float[Tensor, "batch position token"]:
    """The permutation matrix ``M[position, token]`` of an order, in the dtype of another tensor.

    >>> matrix_of_order(torch.tensor([[1, 0]]), like=torch.zeros(()))
    tensor([[[0., 1.],
             [1., 0.]]])
    """
    return torch.nn.functional.one_hot(order, order.shape[1]).to(like)


def identity_order(source: Int[Tensor, "batch n"]) -> Int[Tensor, "batch n"]:
    """The order in which every token keeps its position.

    >>> identity_order(torch.tensor([[17, 5, 12]]))
    tensor([[0, 1, 2]])
    """
    return torch.arange(source.shape[1], device=source.device).repeat(source.shape[0], 1)
