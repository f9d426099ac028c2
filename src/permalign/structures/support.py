"""What a distribution over orders takes and gives: shapes of scores, and which orders there are."""

import torch
from torch import Tensor
from torch.distributions import constraints

from permalign.checks import shape_of
from permalign.kernels.layout import split_count
from permalign.structures.permutations import is_separable


class SeparableOrders(constraints.Constraint):
    """Orders that some tree of straight and inverted nodes yields."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        """Whether each row is one."""
        rows = value.reshape(-1, value.shape[-1])
        words = list(range(value.shape[-1]))
        answers = [sorted(row) == words and is_separable(row) for row in rows.tolist()]
        return torch.tensor(answers, device=value.device).view(value.shape[:-1])


def wrong_scores(scores: Tensor) -> str:
    """What to say of scores whose shape fits no sentence length."""
    message = (
        f"scores has shape {shape_of(scores)}, but must be (batch, T, 2) with T = (n^3 - n) / 6 for n words"
    )
    if scores.dim() == 3 and scores.shape[2] == 2:
        below = max(n for n in range(1, scores.shape[1] + 2) if split_count(n) <= scores.shape[1])
        message += f": {split_count(below)} for {below} words, {split_count(below + 1)} for {below + 1}"
    return message + ". Use SeparablePermutation.from_dense for scores indexed [i, j, k, rule]."


def require_orders(order: Tensor, scores: Tensor, lengths: Tensor, words: int, read_values: bool) -> None:
    """Orders ``(..., batch, n)`` on the device of the scores; their values are read only if asked to."""
    expected = (lengths.shape[0], words)
    if not isinstance(order, Tensor) or order.dtype.is_floating_point or order.dtype == torch.bool:
        kind = order.dtype if isinstance(order, Tensor) else type(order).__name__
        raise ValueError(f"order must be a tensor of whole numbers, order[position] = token, not {kind}.")
    if tuple(order.shape[-2:]) != expected:
        raise ValueError(
            f"order has shape {shape_of(order)}, but must be (..., {expected[0]}, {expected[1]}): "
            "(..., batch, n), order[position] = token."
        )
    if order.device != scores.device:
        raise ValueError(
            f"order is on {order.device}, but scores is on {scores.device}. Move it with order.to(scores.device)."
        )
    if not read_values:
        return
    tokens = torch.arange(words, device=order.device)
    padded = tokens >= lengths[:, None]
    wrong = (order.sort(-1).values != tokens).any(-1) | ((order != tokens) & padded).any(-1)
    if bool(wrong.any()):
        place = tuple(int(index) for index in wrong.nonzero()[0])
        raise ValueError(
            f"order[{', '.join(map(str, place))}] is {order[place].tolist()}, but must be a permutation: each "
            f"token 0..{int(lengths[place[-1]]) - 1} once, and padding in its place "
            f"(order has shape {shape_of(order)})."
        )
