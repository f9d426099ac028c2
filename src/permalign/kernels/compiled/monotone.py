"""Monotone alignments of source cells and output tokens, one output token at a time."""

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.numerics import LOG_ZERO


@inlined
def log_add(first, second):
    """log(exp(first) + exp(second)), of finite numbers."""
    return max(first, second) + np.log1p(np.exp(-abs(first - second)))


@compiled
def writing_weights(b, cells, steps, weight, bias, arrived, lengths, writing):
    """writing[i] = reached[i] + log e[i], where what reaches a cell arrived there or moved on from the cell before.

    Moving on has log-probability log(1 - e[i]) = log e[i] - odds, where log e[i] = min(odds, 0) - log(1 + exp -|odds|).
    """
    last = lengths[b] - 1
    zero, log_zero = arrived.dtype.type(0), arrived.dtype.type(LOG_ZERO)
    for step in range(steps.shape[1]):
        moved = log_zero
        for i in range(last):
            odds = bias[0]
            for h in range(weight.shape[0]):
                odds += max(cells[b, i, h] + steps[b, step, h], zero) * weight[h]
            reached = log_add(arrived[b, step, i], moved)
            rest = np.log1p(np.exp(-abs(odds)))
            writing[b, step, i] = reached + min(odds, zero) - rest
            moved = reached + min(-odds, zero) - rest
        writing[b, step, last] = log_add(arrived[b, step, last], moved)
        writing[b, step, last + 1 :] = log_zero
