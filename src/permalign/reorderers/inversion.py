"""A prior on how often trees invert."""

import torch
from torch import Tensor

from permalign.shapes import Float


def inversion_penalty(marginals: Float[Tensor, "batch splits 2"], rate: float) -> Float[Tensor, ""]:
    """The cross-entropy between a rate of inversion one expects and the model's, over a whole batch.

        found = sum of the inverted rules' marginals / sum of all rules' marginals
        penalty = -rate log found - (1 - rate) log(1 - found)

    Every span counts as much as it is a constituent, so spans no tree has do not matter, and padding, whose marginals
    are zero, does not either. Zero where no sentence has a split.

    Args:
        marginals: `permalign.SeparablePermutation.rule_marginals`.
        rate: the share of inverted nodes to expect.

    >>> half = torch.full((1, 1, 2), 0.5)
    >>> inversion_penalty(half, 0.5)  # log 2
    tensor(0.6931)
    """
    straight, inverted = marginals.sum((0, 1))
    least = torch.finfo(marginals.dtype).eps
    log_nodes = (straight + inverted).clamp(min=least).log()
    log_straight, log_inverted = (part.clamp(min=least).log() - log_nodes for part in (straight, inverted))
    penalty: Tensor = -rate * log_inverted - (1 - rate) * log_straight
    return penalty


def require_prior(rate: float | None, weight: float) -> None:
    """A rate of inversion is None or a probability, its weight is not negative."""
    if rate is not None and not 0 <= rate <= 1:
        raise ValueError(f"inversion_rate is {rate}, but must lie in 0..1, or be None for no prior.")
    if not weight >= 0:
        raise ValueError(f"inversion_weight is {weight}, but must not be negative.")
