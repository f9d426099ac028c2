"""Monotone alignments: the loops of `permalign.kernels.compiled.monotone`, called from torch."""

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import monotone as loops
from permalign.kernels.operators.arrays import as_array, checked_lengths, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.threads import for_each_sentence


def _lengths(emit: Tensor, lengths: Tensor, target_lengths: Tensor) -> tuple[Any, Any]:
    """The numbers of cells and of words, checked."""
    batch, cells, steps = emit.shape
    for name, tensor in (("lengths", lengths), ("target_lengths", target_lengths)):
        if tensor.shape != (batch,):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but must be {(batch,)}")
    return checked_lengths(lengths, cells), checked_lengths(target_lengths, steps)


@custom_op("permalign::monotone_inside", mutates_args=(), device_types="cpu")
def inside(emit: Tensor, move: Tensor, lengths: Tensor, target_lengths: Tensor) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.monotone.inside`; returns the chart as well, for gradients."""
    require_shape("move", move, tuple(emit.shape), emit)
    log_sum = emit.new_zeros(emit.shape[0])
    chart = emit.new_zeros(emit.shape, dtype=torch.float64)
    for_each_sentence(
        loops.inside,
        emit.shape[0],
        as_array(emit),
        as_array(move),
        *_lengths(emit, lengths, target_lengths),
        log_sum.numpy(),
        chart.numpy(),
    )
    return log_sum, chart


@inside.register_fake
def _(emit: Tensor, move: Tensor, lengths: Tensor, target_lengths: Tensor) -> tuple[Tensor, Tensor]:
    return emit.new_empty(emit.shape[0]), emit.new_empty(emit.shape, dtype=torch.float64)


@custom_op("permalign::monotone_inside_backward", mutates_args=(), device_types="cpu")
def inside_backward(
    grad: Tensor, emit: Tensor, move: Tensor, chart: Tensor, lengths: Tensor, target_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The adjoints of the weights of emitting and of moving on."""
    grad_emit, grad_move = emit.new_zeros(emit.shape), emit.new_zeros(emit.shape)
    for_each_sentence(
        loops.inside_backward,
        emit.shape[0],
        *(as_array(tensor) for tensor in (grad, emit, move, chart)),
        *_lengths(emit, lengths, target_lengths),
        grad_emit.numpy(),
        grad_move.numpy(),
    )
    return grad_emit, grad_move


@inside_backward.register_fake
def _(
    grad: Tensor, emit: Tensor, move: Tensor, chart: Tensor, lengths: Tensor, target_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    return emit.new_empty(emit.shape), emit.new_empty(emit.shape)


register_backward(inside, inside_backward, lambda inputs, output: (*inputs[:2], output[1], *inputs[2:]))


def writing_weights(
    cells: Tensor, steps: Tensor, weight: Tensor, bias: Tensor, arrived: Tensor, lengths: Tensor
) -> Tensor:
    """See `permalign.kernels.portable.monotone.writing_weights` (not differentiable).

    It belongs to the search for outputs, which is neither differentiated nor traced. So it is a plain function: calling
    an operator that is registered with torch takes longer than the loops do for one sentence.
    """
    batch, num_cells, hidden = cells.shape
    num_steps = steps.shape[1]
    for name, tensor, shape in (
        ("steps", steps, (batch, num_steps, hidden)),
        ("weight", weight, (hidden,)),
        ("bias", bias, (1,)),
        ("arrived", arrived, (batch, num_steps, num_cells)),
    ):
        require_shape(name, tensor, shape, cells)
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, but must be {(batch,)}")
    writing = torch.empty_like(arrived, memory_format=torch.contiguous_format)
    arrays = (as_array(tensor) for tensor in (cells, steps, weight, bias, arrived))
    for_each_sentence(
        loops.writing_weights, batch, *arrays, checked_lengths(lengths, num_cells), writing.numpy()
    )
    return writing
