"""Log-probabilities of impossible things: finite inside charts, -inf in answers."""

import torch
from torch import Tensor

from permalign.kernels.numerics import LOG_ZERO as LOG_ZERO  # stands for log 0 inside charts
from permalign.shapes import Float

LARGE = 2.0**16
"""From here on, numbers in single precision are more than 1/128 apart: too far for log-probabilities."""


def is_too_large(log_partition: Float[Tensor, " batch"]) -> bool:
    """Whether log-probabilities, which are differences from it, have to be computed in double precision.

    A log-weight of 1e10 is known to within 512 in single precision, and so is its difference from another one, which
    could then even be positive. While `torch.compile` traces, no value is read, and single precision is kept.
    """
    if log_partition.dtype == torch.float64 or torch.compiler.is_compiling():
        return False
    return not bool((log_partition.detach().abs() <= LARGE).all())  # NaN is too large as well


def minus_infinity_below(
    value: Float[Tensor, " batch"], total: Float[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Replace the value by -inf, without a gradient, where a chart's total shows that nothing was possible."""
    return torch.where(total < LOG_ZERO / 2, -torch.inf, value)


def zero_if_impossible(total: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
    """Replace a total of -inf by 0, so that one can divide by it: if nothing is possible, weights are zero anyway."""
    return total.masked_fill(total == -torch.inf, 0.0)
