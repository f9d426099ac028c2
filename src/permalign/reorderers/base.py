"""The base class of all reorderers, and what they return."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from torch import Tensor, nn

from permalign.shapes import Float, Int
from permalign.structures import Derivation, OrderDistribution


@dataclass(frozen=True)
class Reordering:
    """The result of reordering a batch: the identity, a (relaxed) permutation, or states mixed in another way.

    Attributes:
        states: ``(copies * batch, n, width)``, the head's input, reordered; row ``copy * batch + b`` is sentence b.
        copies: the number of samples per sentence; 1 unless the objective is ``samples``.
        matrix: ``(copies * batch, position, token)``, the (relaxed) permutation matrix, if there is one.
        order: ``(batch, n)``, the token at every position if the reordering is discrete, else None.
        distribution: the distribution over orders, if there is one, for exact objectives and for explanations.
        find_derivations: computes `derivations`, for only explanations need them; None if there are none.
        penalties: named scalars to add to the loss (an inversion prior, say).
    """

    states: Tensor
    copies: int = 1
    matrix: Tensor | None = None
    order: Tensor | None = None
    distribution: OrderDistribution | None = None
    find_derivations: Callable[[], list[Derivation]] | None = None
    penalties: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def derivations(self) -> list[Derivation] | None:
        """The derivation of each sentence's order, if the order was chosen by a derivation."""
        return None if self.find_derivations is None else self.find_derivations()


class Reorderer(nn.Module, ABC):
    """Puts the states that a head reads into a new order, which depends on the source sentence.

    Attributes:
        sums_over_orders: whether the head sums over all orders itself (the exact objective). In training the states
            then keep their original order, and come with the distribution over orders.
        num_labels: how many labels the nodes of its trees may have; 1 where there are none.
    """

    sums_over_orders: bool = False
    num_labels: int = 1

    @abstractmethod
    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """Reorder the states: by the reorderer's objective in training mode, by its decoding in evaluation mode.

        Args:
            source: the token ids, padded.
            lengths: the lengths of the sentences.
            states: what the head reads of each word (its embeddings, without context), in the original order.
        """
