"""The sums of an additive softmax: the loops of `permalign.kernels.compiled.additive` as a torch operator."""

from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import additive as loops
from permalign.kernels.operators.arrays import require_shape
from permalign.kernels.threads import for_each_sentence


@custom_op("permalign::exponential_products", mutates_args=("cells", "steps"), device_types="cpu")
def exponential_products(cells: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `permalign.kernels.portable.additive.exponential_products`."""
    batch, num_cells, vocab_size = cells.shape
    require_shape("steps", steps, (batch, steps.shape[1], vocab_size), cells)
    if not (cells.is_contiguous() and steps.is_contiguous()):
        raise ValueError(
            "cells and steps are overwritten, so both must be contiguous; pass them with .contiguous()"
        )
    products = cells.new_empty(batch, num_cells, steps.shape[1])
    cell_tops, step_tops = (logits.new_empty(*logits.shape[:2], 1) for logits in (cells, steps))
    arrays = [tensor.numpy() for tensor in (cells, steps, products, cell_tops, step_tops)]
    for_each_sentence(loops.exponential_products, batch, *arrays)
    return products, cell_tops, step_tops


@exponential_products.register_fake
def _(cells: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    cell_tops, step_tops = (logits.new_empty(*logits.shape[:2], 1) for logits in (cells, steps))
    return cells.new_empty(*cells.shape[:2], steps.shape[1]), cell_tops, step_tops
