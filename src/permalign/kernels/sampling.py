"""Random choices in plain torch: options drawn by uniform numbers, and Gumbel noise."""

import torch
from torch import Tensor

from permalign.kernels.numerics import LOG_ZERO


def choose(weights: Tensor, uniform: Tensor | None) -> Tensor:
    """The option ``(rows,)`` of every row of log-weights ``(rows, options)``: the heaviest, or one drawn at random.

    An option is drawn by inverting the distribution function: it is the first whose cumulative probability exceeds the
    uniform number. Impossible options, whose weight is -inf or not above ``LOG_ZERO / 2``, are never drawn, not even
    where rounding lets the number reach the total. Where all options of a row are impossible, the heaviest is taken.

    Args:
        weights: unnormalised log-probabilities.
        uniform: ``(rows,)`` in [0, 1), one number for every row; None to take the heaviest options.

    >>> weights = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]).log()
    >>> choose(weights, None), choose(weights, torch.tensor([0.6, 0.2]))
    (tensor([0, 0]), tensor([1, 0]))
    """
    heaviest = weights.argmax(-1)
    if uniform is None:
        return heaviest
    cumulative = weights.softmax(-1).cumsum(-1)
    # the last entry is the total, which rounding may have moved away from one
    drawn = (cumulative <= uniform[:, None].to(cumulative) * cumulative[:, -1:]).sum(-1)
    option = torch.arange(weights.shape[-1], device=weights.device)
    last_possible = torch.where(weights > LOG_ZERO / 2, option, -1).amax(-1)
    return torch.where(last_possible < 0, heaviest, torch.minimum(drawn, last_possible))


def gumbel_noise(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Independent draws from the standard Gumbel distribution, in the shape, dtype and device of a tensor.

    >>> gumbel_noise(torch.zeros(10_000), torch.Generator().manual_seed(0)).mean()  # Euler's constant, 0.577
    tensor(0.5781)
    """
    uniform = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
    tiny = torch.finfo(like.dtype).tiny
    return -(-uniform.clamp(min=tiny).log()).clamp(min=tiny).log()
