"""Orders of tokens as events of ``torch.distributions``: their support, checks of orders, and what is not defined."""

from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from permalign.checks import shape_of, should_validate
from permalign.shapes import Int
from permalign.structures.permutations import is_separable, separable_permutations


class SeparableOrders(constraints.Constraint):
    """The constraint that rows are separable orders."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        """Whether each row is a separable order."""
        rows = value.reshape(-1, value.shape[-1])
        tokens = list(range(value.shape[-1]))
        answers = [sorted(row) == tokens and is_separable(row) for row in rows.tolist()]
        return torch.tensor(answers, device=value.device).view(value.shape[:-1])


class Orders(Distribution):
    """A distribution whose events are separable orders: a batch of sentences, each with one event of n tokens.

    Attributes:
        lengths: ``(batch,)``, the number of tokens of every sentence.
    """

    has_enumerate_support = True
    lengths: Tensor

    def __init__(self, batch: int, length: int, validate_args: bool | None) -> None:
        super().__init__(torch.Size([batch]), torch.Size([length]), validate_args=False)
        self._validate_args = should_validate(validate_args)

    @property
    def length(self) -> int:
        """The number of tokens there is room for, n."""
        return self.event_shape[0]

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Separable orders of ``n`` tokens."""
        return SeparableOrders()

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "orders batch n"]:
        """All separable orders, ``(number, batch, n)``: 1, 2, 6, 22, 90, ... of them. Lengths are equal, at most 10."""
        length = int(self.lengths[0])
        if bool((self.lengths != length).any()):
            raise ValueError(
                f"lengths are {self.lengths.tolist()}, but only sentences of equal length have the same support. "
                "Enumerate each length separately."
            )
        if length > 10:
            raise ValueError(
                f"a sentence of {length} words has too many orders to list; at most 10 words (206,098 orders). "
                "Use sample or top_derivations."
            )
        padding = tuple(range(length, self.length))
        orders = torch.tensor([order + padding for order in separable_permutations(length)])
        orders = orders.to(self.lengths.device)[:, None]
        return orders.expand(-1, self.batch_shape[0], -1) if expand else orders

    @property
    def mean(self) -> NoReturn:
        """Not defined: orders cannot be averaged, but their matrices can; see `expected_matrix`."""
        raise NotImplementedError(
            "orders have no mean. Use expected_matrix(), the mean of their permutation matrices."
        )

    @property
    def variance(self) -> NoReturn:
        """Not defined; see `entropy` for how spread out a distribution is."""
        raise NotImplementedError(
            "orders have no variance or standard deviation. Use entropy() to see how spread out they are."
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> NoReturn:
        """Not possible for discrete orders; see `relaxed_sample` for matrices with gradients."""
        raise NotImplementedError(
            "orders are discrete, so samples have no gradient. Use relaxed_sample(temperature) for permutation "
            "matrices with gradients, or sample() for orders without."
        )

    def cdf(self, value: Tensor) -> NoReturn:
        """Not defined: orders do not lie on a line; see `log_prob`."""
        raise NotImplementedError("orders have no cumulative distribution. Use log_prob(order).")

    def icdf(self, value: Tensor) -> NoReturn:
        """Not defined: orders do not lie on a line; see `sample`."""
        raise NotImplementedError("orders have no cumulative distribution to invert. Use sample().")


def require_orders(order: Tensor, lengths: Tensor, length: int, read_values: bool) -> None:
    """Require orders ``(..., batch, n)`` on the device of the lengths, with padding in its place.

    Args:
        order: the orders, ``order[..., position] = token``.
        lengths: ``(batch,)``, the number of tokens of every sentence.
        length: the number of tokens there is room for, n.
        read_values: whether to check the values too, which waits for the device.
    """
    expected = (lengths.shape[0], length)
    if not isinstance(order, Tensor) or order.dtype.is_floating_point or order.dtype == torch.bool:
        kind = order.dtype if isinstance(order, Tensor) else type(order).__name__
        raise ValueError(f"order must be a tensor of whole numbers, order[position] = token, not {kind}.")
    if tuple(order.shape[-2:]) != expected:
        raise ValueError(
            f"order has shape {shape_of(order)}, but must be (..., {expected[0]}, {expected[1]}): "
            "(..., batch, n), order[position] = token."
        )
    if order.device != lengths.device:
        raise ValueError(
            f"order is on {order.device}, but scores is on {lengths.device}. Move it with order.to(scores.device)."
        )
    if not read_values:
        return
    tokens = torch.arange(length, device=order.device)
    padded = tokens >= lengths[:, None]
    wrong = (order.sort(-1).values != tokens).any(-1) | ((order != tokens) & padded).any(-1)
    if bool(wrong.any()):
        row = tuple(int(index) for index in wrong.nonzero()[0])
        raise ValueError(
            f"order[{', '.join(map(str, row))}] is {order[row].tolist()}, but must be a permutation: each "
            f"token 0..{int(lengths[row[-1]]) - 1} once, and padding in its place "
            f"(order has shape {shape_of(order)})."
        )
