"""Log-probabilities of impossible things: finite inside charts, -inf in answers."""

import torch
from torch import Tensor

from permalign.kernels.numerics import LOG_ZERO as LOG_ZERO  # stands for log 0 inside charts
from permalign.shapes import Float


def minus_infinity_below(
    value: Float[Tensor, " batch"], total: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """The value, but -inf (with no gradient) where a chart's total shows that nothing was possible."""
    return torch.where(total < LOG_ZERO / 2, -torch.inf, value)


def zero_if_impossible(total: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """A total to divide weights by: 0 instead of -inf where nothing was possible and all weights vanish anyway."""
    return total.masked_fill(total == -torch.inf, 0.0)
