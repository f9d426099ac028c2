"""Numbers that every backend must agree on: the logarithm of zero, safe ranges of scores, pruning, the dropout hash."""

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor

LOG_TWO = log(2.0)

LOG_ZERO = -1e30
"""The log-weight of what is impossible: sums of a few of them stay finite in float32, so no gradient becomes NaN."""

RULE_RANGE = {torch.float32: 30.0, torch.float64: 300.0}
"""By how much log-weights of rules (and of root labels) may differ before products of probabilities lose mass."""


def needs_logs(rules: Tensor | Sequence[Tensor], root: Tensor, precision: torch.dtype | None = None) -> bool:
    """Whether rules differ so much that products of probabilities could underflow where it matters.

    A weight is lost if it is smaller than its cell's largest weight times ``tiny``, the smallest normal number. Let R
    be the range of the log-weights of the rules (and of the root's labels). Within a cell, two labels differ by at most
    a factor ``exp(R)`` in the weight of what is outside the cell, and by at most ``exp(R)`` in what one split point
    contributes. So what is lost is less than ``tiny * exp(2 R)`` of the total, and R may be as large as half the
    exponent's range, less some room for precision.

    Args:
        rules: ``(2, K, K, K)``, log-weights of rules, or tensors whose sums these are.
        root: ``(K,)``, log-weights of the root's labels.
        precision: the type in which the products are computed; by default that of the rules.
    """
    limit = RULE_RANGE[precision or root.dtype]
    parts = (rules,) if isinstance(rules, Tensor) else rules
    ranges = (sum(_range(part) for part in parts), _range(root))
    return any(bool(scores > limit) for scores in ranges)


def _range(scores: Tensor) -> Tensor:
    return scores.detach().amax() - scores.detach().amin()


# How charts of outputs are pruned; see `permalign.kernels.portable.pruned_synchronous`.

SCALING_STEPS = 4
"""How often the scales of tokens are adjusted; more steps hardly lower the relaxed likelihood."""

LEAST_USE = 1e-3
"""By how much a token's scale may fall in one step."""

LARGEST_SHARE = 0.5
"""If more than this share of cells would be kept, all are: a sum over so many is hardly faster than the exact one."""

# How hidden units are dropped.

HASH_MULTIPLIERS = (0x7FEB352D, 0x846CA68B)
"""Odd constants of the 32-bit hash that decides which hidden units are dropped."""

GOLDEN = 0x9E3779B9
"""2^32 divided by the golden ratio: multiples of it, added to a key, are spread evenly."""


def dropout_scale(dropout: float) -> tuple[int, float]:
    """The 16-bit threshold below which a unit is dropped, and the factor for the units that stay."""
    threshold = round(dropout * 65536)
    return threshold, 65536 / (65536 - threshold)
