"""Monotone alignments, one output token at a time: the compiled loops, called from torch.

They belong to the search for outputs, which is neither differentiated nor traced. So they are plain functions: calling
an operator that is registered with torch takes longer than the loops do for one sentence.
"""

import torch
from torch import Tensor

from permalign.kernels.compiled import monotone as loops
from permalign.kernels.operators.arrays import as_array, checked_lengths, require_shape
from permalign.kernels.threads import for_each_sentence


def writing_weights(
    cells: Tensor, steps: Tensor, weight: Tensor, bias: Tensor, arrived: Tensor, lengths: Tensor
) -> Tensor:
    """See `permalign.kernels.portable.monotone.writing_weights` (not differentiable)."""
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
