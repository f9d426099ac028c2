"""The training objectives of reorderers by trees: how the sum over orders is computed, bounded or relaxed."""

from typing import Literal

from torch import Tensor

from permalign.reorderers.base import Reordering
from permalign.shapes import Float
from permalign.structures import OrderDistribution

Objective = Literal["soft", "hard", "samples", "exact"]


def reorder_by_objective(
    objective: Objective,
    distribution: OrderDistribution,
    states: Float[Tensor, "batch n width"],
    temperature: float,
    num_samples: int,
) -> Reordering:
    """Reorder states in training.

    - ``soft``: the expected permutation matrix;
    - ``hard``: one exact sample, with the gradient of its relaxation (straight-through Gumbel-softmax);
    - ``samples``: several such samples, for the bound ``-log (1/K) sum_k p(y | M_k x)``;
    - ``exact``: no reordering; states keep their order, and the head sums over all orders itself.

    Args:
        objective: one of the four.
        distribution: the distribution over the orders of every sentence.
        states: the states that the head reads, in the original order.
        temperature: the temperature of the relaxation (``hard``, ``samples``).
        num_samples: K, the number of samples of the objective ``samples``.
    """
    if objective == "exact":
        return Reordering(states, distribution=distribution)
    copies = num_samples if objective == "samples" else 1
    if objective == "soft":
        matrix = distribution.expected_matrix()
    else:
        matrix = distribution.repeat(copies).relaxed_sample(temperature, hard=True)
    return Reordering(matrix @ states.repeat(copies, 1, 1), copies, matrix, distribution=distribution)
