"""The reorderer of models that do not reorder."""

from torch import Tensor

from permalign.reorderers.base import Reorderer, Reordering
from permalign.reorderers.discrete_order import identity_order
from permalign.shapes import Float, Int


class IdentityReorderer(Reorderer):
    """Keeps all words in their positions (``none``).

    >>> import torch
    >>> source, states = torch.tensor([[7, 5, 4]]), torch.randn(1, 3, 2)
    >>> IdentityReorderer()(source, torch.tensor([3]), states).order
    tensor([[0, 1, 2]])
    """

    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """Return the states unchanged."""
        return Reordering(states, order=identity_order(source))
