"""Monotone alignments of source cells and output tokens, in plain torch: their sum, and one token at a time.

Sums are computed one anti-diagonal of the lattice of cells and steps after the other.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from permalign.kernels.numerics import LOG_ZERO
from permalign.shapes import Float, Int


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


def inside(
    emit: Float[Tensor, "batch cells steps"],
    move: Float[Tensor, "batch cells steps"],
    lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """Sum the weights of all monotone alignments, which end with the last word of the last cell.

        total = reached(I-1, J-1) + emit(I-1, J-1)

    with ``reached`` as in `lattice`. O(I J), in I + J steps.

    Args:
        emit: the log-weight of emitting word j at cell i; finite (`LOG_ZERO` for what is impossible).
        move: the log-weight of moving on from cell i, with j words written; finite as well.
        lengths: I, the number of cells of each pair.
        target_lengths: J, the number of words of each pair.

    >>> zeros, two = torch.zeros(1, 2, 2), torch.tensor([2])
    >>> inside(zeros, zeros, two, two).exp()  # the first word comes from either cell
    tensor([2.])
    """
    row, cell, step = torch.arange(len(emit), device=emit.device), lengths - 1, target_lengths - 1
    return lattice(emit, move)[row, cell, step] + emit[row, cell, step]


def lattice(
    emit: Float[Tensor, "batch cells steps"], move: Float[Tensor, "batch cells steps"], maximise: bool = False
) -> Float[Tensor, "batch cells steps"]:
    """Sum the weights of all ways to reach cell i with j words written, or find the largest.

    reached(0,0) = 0
    reached(i,j) = log( exp(reached(i,j-1) + emit(i,j-1)) + exp(reached(i-1,j) + move(i-1,j)) )
    """
    batch, cells, steps = emit.shape
    emit_diagonals, move_diagonals = _diagonals(emit), _diagonals(move)
    current = emit.new_full((batch, cells), LOG_ZERO)
    current[:, 0] = 0.0
    reached = [current]
    for diagonal in range(1, cells + steps - 1):
        # (i, j) is reached by a word from (i, j-1), which has the same index in its diagonal, or by a move from
        # (i-1, j), which is one index before
        by_word = current + emit_diagonals[:, diagonal - 1]
        by_move = pad((current + move_diagonals[:, diagonal - 1])[:, :-1], (1, 0), value=LOG_ZERO)
        current = torch.maximum(by_word, by_move) if maximise else torch.logaddexp(by_word, by_move)
        reached.append(current)
    return _lattice_of(torch.stack(reached, dim=1), steps)


def remaining(
    emit: Float[Tensor, "batch cells steps"],
    move: Float[Tensor, "batch cells steps"],
    lengths: Int[Tensor, " batch"],
    target_lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch cells steps"]:
    """Sum the weights of all ways to finish after word j was emitted at cell i."""
    batch, cells, steps = emit.shape
    emit_diagonals, move_diagonals = _diagonals(emit), _diagonals(move)
    row = torch.arange(batch, device=emit.device)
    done = torch.zeros((batch, cells, steps), dtype=torch.bool, device=emit.device)
    done[row, lengths - 1, target_lengths - 1] = True
    # weights of finishing from (i, j), before word j is written: emit the last word, or emit or move and go on
    last_words = _diagonals(torch.where(done, emit, LOG_ZERO))
    current = last_words[:, -1]
    finishing = [current]  # from the last diagonal to the first
    for diagonal in range(cells + steps - 3, -1, -1):
        by_word = current + emit_diagonals[:, diagonal]
        by_move = pad(current[:, 1:], (0, 1), value=LOG_ZERO) + move_diagonals[:, diagonal]
        current = torch.logaddexp(torch.logaddexp(by_word, by_move), last_words[:, diagonal])
        finishing.append(current)
    to_finish = _lattice_of(torch.stack(finishing[::-1], dim=1), steps)
    # after word j at cell i, the alignment is at (i, j + 1)
    return torch.where(done, 0.0, pad(to_finish[:, :, 1:], (0, 1), value=LOG_ZERO))


def _diagonals(lattice: Tensor) -> Tensor:
    """``(batch, cells, steps)`` as ``(batch, cells + steps - 1, cells)``: entry [d, i] is lattice [i, d - i]."""
    _, cells, steps = lattice.shape
    cell = torch.arange(cells, device=lattice.device)
    step = torch.arange(cells + steps - 1, device=lattice.device)[:, None] - cell
    inside = (step >= 0) & (step < steps)
    return torch.where(inside, lattice[:, cell, step.clamp(0, steps - 1)], LOG_ZERO)


def _lattice_of(diagonals: Tensor, steps: int) -> Tensor:
    """The inverse of `_diagonals`."""
    cell = torch.arange(diagonals.shape[2], device=diagonals.device)[:, None]
    step = torch.arange(steps, device=diagonals.device)
    return diagonals[:, cell + step, cell]
