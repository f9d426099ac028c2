"""What every reorderer gives: a way to put a sentence's states into a new order."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from torch import Tensor, nn

from permalign.shapes import Float, Int
from permalign.structures import Derivation, LabelledPermutation, SeparablePermutation

Distribution = SeparablePermutation | LabelledPermutation
"""Over orders; both answer the same questions."""


@dataclass(frozen=True)
class Reordering:
    """What a reorderer makes of a batch: identity, a (relaxed) permutation, or states it has already mixed.

    Attributes:
        states: ``(copies * batch, n, width)``, the head's input, reordered; row ``copy * batch + b`` is sentence b.
        copies: how many samples of each sentence there are (1 but for the objective ``samples``).
        matrix: ``(copies * batch, position, token)``, the (relaxed) permutation; None where there is none.
        order: ``(batch, n)``, the token at every position, where the reordering is discrete; else None.
        distribution: over orders, where there is one: for exact objectives and for explanations.
        derivations: of the order chosen, one for each sentence, where it was chosen by a derivation.
        penalties: named terms to add to the loss (an inversion prior, say), each a scalar.
    """

    states: Tensor
    copies: int = 1
    matrix: Tensor | None = None
    order: Tensor | None = None
    distribution: Distribution | None = None
    derivations: list[Derivation] | None = None
    penalties: dict[str, Tensor] = field(default_factory=dict)


class Reorderer(nn.Module, ABC):
    """Puts the states of a head into a new order, by what it sees in the source sentence.

    ``marginalises`` is True for a reorderer that leaves the sum over orders to the head (the exact objective): its
    states come back in the original order in training, with the distribution beside them.
    """

    marginalises: bool = False

    @abstractmethod
    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """Reorder the states of the head.

        In training mode by the reorderer's objective, in evaluation mode by its decoding.

        Args:
            source: word numbers, padded.
            lengths: of the sentences.
            states: what the head reads of each word (its embeddings, without context), in the original order.
        """
