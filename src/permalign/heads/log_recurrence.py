"""A linear recurrence in log space, computed for all positions at once."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.shapes import Float
from permalign.structures.log_space import LOG_ZERO


def log_recurrence(
    sources: Float[Tensor, "*rows positions"], decays: Float[Tensor, "*rows positions"]
) -> Float[Tensor, "*rows positions"]:
    """Compute ``x_i = log(exp(source_i) + exp(x_{i-1} + decay_i))``, where nothing precedes the first position.

    The number of sources summed up doubles in each round: after k rounds ``x_i`` includes all sources fewer than 2^k
    positions away, and ``decay_i`` is the total decay from the nearest source that it does not include. O(n log n) work
    in log n rounds. Weights are only ever added, never subtracted: differences of large running sums would lose them.

    Args:
        sources: the log-weight that enters at each position; finite (`LOG_ZERO` for none).
        decays: the log-share that remains of the previous position; the first is not read.

    >>> half = torch.tensor(0.5).log()
    >>> log_recurrence(torch.zeros(4), half.expand(4)).exp()
    tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    positions, distance = sources.shape[-1], 1
    while distance < positions:
        arriving = pad(sources[..., :-distance], (distance, 0), value=LOG_ZERO) + decays
        sources = torch.logaddexp(sources, arriving)
        if 2 * distance < positions:
            decays = pad(decays[..., :-distance], (distance, 0)) + decays
        distance *= 2
    return sources
