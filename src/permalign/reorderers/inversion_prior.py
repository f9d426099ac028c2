"""A prior on how often trees invert."""

from typing import NamedTuple

import torch
from torch import Tensor

from permalign.shapes import Float


class InversionPrior(NamedTuple):
    """A term of the loss that pulls the share of inverted rules towards an expected rate.

    Attributes:
        rate: the share of inverted rules to expect, between 0 and 1.
        weight: the weight of the term in the loss, at least 0.
    """

    rate: float
    weight: float

    def require_valid(self) -> None:
        """Check the ranges of rate and weight."""
        if not 0 <= self.rate <= 1:
            raise ValueError(f"inversion_rate is {self.rate}, but must lie in 0..1.")
        if not self.weight >= 0:
            raise ValueError(f"inversion_weight is {self.weight}, but must not be negative.")

    def penalty(self, marginals: Float[Tensor, "batch splits 2"]) -> Float[Tensor, ""]:
        """The weighted penalty of a batch, given `permalign.SeparablePermutation.rule_marginals`."""
        return self.weight * inversion_penalty(marginals, self.rate)


def inversion_penalty(marginals: Float[Tensor, "batch splits 2"], rate: float) -> Float[Tensor, ""]:
    """The cross-entropy between the expected rate of inversions and the model's, over a whole batch.

        share = sum of the inverted rules' marginals / sum of all rules' marginals
        penalty = -rate log share - (1 - rate) log(1 - share)

    Every span counts by its probability of being a constituent, so spans that no tree has do not matter, nor does
    padding, whose marginals are zero. The penalty is zero if no sentence has a split.

    Args:
        marginals: `permalign.SeparablePermutation.rule_marginals`.
        rate: the share of inverted rules to expect.

    >>> half = torch.full((1, 1, 2), 0.5)
    >>> inversion_penalty(half, 0.5)  # log 2
    tensor(0.6931)
    """
    straight, inverted = marginals.sum((0, 1))
    epsilon = torch.finfo(marginals.dtype).eps
    log_total = (straight + inverted).clamp(min=epsilon).log()
    log_straight, log_inverted = (
        count.clamp(min=epsilon).log() - log_total for count in (straight, inverted)
    )
    penalty: Tensor = -rate * log_inverted - (1 - rate) * log_straight
    return penalty
