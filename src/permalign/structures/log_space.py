"""Log-probabilities of impossible things: finite inside charts, -inf in answers."""

import torch
from torch import Tensor

from permalign.kernels.numerics import LOG_ZERO as LOG_ZERO  # stands for log 0 inside charts
from permalign.shapes import Float


def minus_infinity_below(
    value: Float[Tensor, " batch"], total: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Replace the value by -inf, without a gradient, where a chart's total shows that nothing was possible."""
    return torch.where(total < LOG_ZERO / 2, -torch.inf, value)


def zero_if_impossible(total: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Replace a total of -inf by 0, so that one can divide by it: if nothing is possible, weights are zero anyway."""
    return total.masked_fill(total == -torch.inf, 0.0)
