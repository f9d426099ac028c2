"""A linear recurrence in log space, all its places at once."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.shapes import Float
from permalign.structures.restriction import LOG_ZERO


def log_recurrence(
    sources: Float[Tensor, "*rows places"], decays: Float[Tensor, "*rows places"]
) -> Float[Tensor, "*rows places"]:
    """``x_i = log(exp(source_i) + exp(x_{i-1} + decay_i))``, where nothing comes before the first place.

    Doubles the reach of every place: after k rounds ``x_i`` holds all sources that are fewer than 2^k places away,
    and ``decay_i`` the way to the nearest one that it does not hold. O(n log n) work in log n rounds. Weights are
    added along the way and never subtracted, so that a difference of large sums cannot drown them.

    Args:
        sources: what enters at each place, as logs; finite (`LOG_ZERO` for nothing).
        decays: what is left of the place before, as logs; the first is not read.

    >>> half = torch.tensor(0.5).log()
    >>> log_recurrence(torch.zeros(4), half.expand(4)).exp()
    tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    places = sources.shape[-1]
    reach = 1
    while reach < places:
        come = pad(sources[..., :-reach], (reach, 0), value=LOG_ZERO) + decays
        sources = torch.logaddexp(sources, come)
        decays = pad(decays[..., :-reach], (reach, 0)) + decays
        reach *= 2
    return sources
