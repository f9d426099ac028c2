"""Monotone alignments of source cells and output tokens: their sum, in double precision, and one token at a time."""

from math import exp

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


@compiled
def inside(b, emit, move, lengths, target_lengths, log_sum, chart):
    """reached(i,j) = log( exp(reached(i,j-1) + emit(i,j-1)) + exp(reached(i-1,j) + move(i-1,j)) )."""
    cells, steps, reached = lengths[b], target_lengths[b], chart[b]
    for i in range(cells):
        for j in range(steps):
            by_word = reached[i, j - 1] + emit[b, i, j - 1] if j > 0 else LOG_ZERO
            by_move = reached[i - 1, j] + move[b, i - 1, j] if i > 0 else LOG_ZERO
            reached[i, j] = log_add(by_word, by_move) if i + j > 0 else 0.0
    log_sum[b] = reached[cells - 1, steps - 1] + emit[b, cells - 1, steps - 1]


@compiled
def inside_backward(b, grad, emit, move, chart, lengths, target_lengths, grad_emit, grad_move):
    """The adjoints of `inside`: of both weights, the probability that an alignment takes that step, times ``grad``.

    An alignment leaves (i, j) by a word or by a move. So the adjoint of reached(i,j) is the sum of emit_bar(i,j) and
    move_bar(i,j), and is divided among the two steps that lead to (i, j) by their share of exp(reached(i,j)):

        emit_bar(i,j-1) = reached_bar(i,j) exp(reached(i,j-1) + emit(i,j-1) - reached(i,j))
        move_bar(i-1,j) = reached_bar(i,j) exp(reached(i-1,j) + move(i-1,j) - reached(i,j))
    """
    cells, steps, reached = lengths[b], target_lengths[b], chart[b]
    grad_emit[b, cells - 1, steps - 1] = grad[b]
    for i in range(cells - 1, -1, -1):
        for j in range(steps - 1, -1, -1):
            adjoint = grad_emit[b, i, j] + grad_move[b, i, j]
            if j > 0:
                share = exp(reached[i, j - 1] + emit[b, i, j - 1] - reached[i, j])
                grad_emit[b, i, j - 1] = adjoint * share
            if i > 0:
                share = exp(reached[i - 1, j] + move[b, i - 1, j] - reached[i, j])
                grad_move[b, i - 1, j] = adjoint * share
