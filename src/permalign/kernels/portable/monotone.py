"""Monotone alignments of source cells and output tokens, one output token at a time, in plain torch."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from permalign.kernels.numerics import LOG_ZERO


def log_recurrence(sources: Tensor, decays: Tensor) -> Tensor:
    """Compute ``x_i = log(exp(source_i) + exp(x_{i-1} + decay_i))``, where nothing precedes the first position.

    The number of sources summed up doubles in each round: after k rounds ``x_i`` includes all sources fewer than 2^k
    positions away, and ``decay_i`` is the total decay from the nearest source that it does not include. O(n log n) work
    in log n rounds. Weights are only ever added, never subtracted: differences of large running sums would lose them.

    Args:
        sources: ``(..., positions)``, the log-weight that enters at each position; finite (`LOG_ZERO` for none).
        decays: ``(..., positions)``, the log-share that remains of the previous position; the first is not read.

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


def writing_weights(
    cells: Tensor, steps: Tensor, weight: Tensor, bias: Tensor, arrived: Tensor, lengths: Tensor
) -> Tensor:
    """Compute the log-weight ``(batch, steps, cells)`` with which each cell writes the next token.

    A cell emits the token with probability ``e``, or else moves on to the next cell; the last cell always emits it:

        e[i]       = sigmoid(weight . relu(cells_i + steps) + bias)
        reached[i] = log(exp(arrived[i]) + exp(reached[i-1]) (1 - e[i-1]))
        writing[i] = reached[i] + log e[i]

    O(cells hidden) for each step.

    Args:
        cells: ``(batch, cells, hidden)``, what each cell contributes to the decision.
        steps: ``(batch, steps, hidden)``, what each prefix of an output contributes.
        weight: ``(hidden,)``, the output layer.
        bias: ``(1,)``, its bias.
        arrived: ``(batch, steps, cells)``, the log-weight of a prefix whose last token each cell wrote; finite.
        lengths: ``(batch,)``, the number of cells of each sentence; beyond, the result is `LOG_ZERO` or less.
    """
    odds = (cells[:, None] + steps[:, :, None]).relu_() @ weight + bias
    position = torch.arange(cells.shape[1], device=cells.device)
    last, beyond = (test(position, lengths[:, None, None] - 1) for test in (torch.eq, torch.gt))
    move = logsigmoid(-odds).masked_fill(last, LOG_ZERO)
    reached = log_recurrence(arrived, pad(move[..., :-1], (1, 0)))
    return (reached + logsigmoid(odds).masked_fill(last, 0.0)).masked_fill(beyond, LOG_ZERO)
