"""The sums of an additive softmax, whose logits are sums of a term of the cell and a term of the step."""

from torch import Tensor

from permalign.shapes import Float


def exponential_products(
    cells: Float[Tensor, "batch cells vocab"], steps: Float[Tensor, "batch steps vocab"]
) -> tuple[
    Float[Tensor, "batch cells steps"], Float[Tensor, "batch cells 1"], Float[Tensor, "batch steps 1"]
]:
    """Overwrite the terms A and B by their exponentials P and Q, and sum the products of these over the vocabulary.

        P_iw = exp(A_iw - max_w A_iw)      Q_jw = exp(B_jw - max_w B_jw)      products_ij = sum_w P_iw Q_jw

    O(I J V) for I cells, J steps and V tokens; not differentiable.

    Args:
        cells: A, contiguous; it holds P afterwards.
        steps: B, contiguous; it holds Q afterwards.

    Returns:
        The products, and the largest entry of each row of A and of B.

    >>> import torch
    >>> cells, steps = torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[2.0, 2.0]]])
    >>> products, cell_tops, step_tops = exponential_products(cells, steps)
    >>> cells, steps, products
    (tensor([[[0.3679, 1.0000]]]), tensor([[[1., 1.]]]), tensor([[[1.3679]]]))
    """
    cell_tops, step_tops = (logits.amax(-1, keepdim=True) for logits in (cells, steps))
    products = cells.sub_(cell_tops).exp_() @ steps.sub_(step_tops).exp_().transpose(1, 2)
    return products, cell_tops, step_tops
