"""What every encoder does: put words into context."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_lengths, require_range, shape_of
from permalign.shapes import Bool, Float, Int


class Encoder(nn.Module, ABC):
    """Turns the vectors of words into states of the same words in their context.

    States at padding are zero, and neither padding nor the other sentences of a batch change a state.

    Attributes:
        input_width: of the vectors it reads.
        width: of the states it gives.
    """

    input_width: int
    width: int

    @abstractmethod
    def forward(
        self, embedded: Float[Tensor, "batch n input_width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n width"]:
        """The states of all words.

        Args:
            embedded: the words' vectors, padded.
            lengths: of the sentences, at least 1.
        """

    def require_input(self, embedded: Tensor, lengths: Tensor) -> None:
        """Vectors of the right width, and lengths that fit them."""
        if embedded.dim() != 3 or embedded.shape[1] < 1 or embedded.shape[2] != self.input_width:
            raise ValueError(
                f"embedded has shape {shape_of(embedded)}, but must be (batch, n, {self.input_width}) with at least "
                "one word. Build the encoder with the input_width of these vectors."
            )
        require_lengths("lengths", lengths, "embedded", embedded, embedded.shape[1])
        require_range("lengths", lengths, "embedded", embedded, embedded.shape[1])


class Unchanged(Encoder):
    """Adds no context: for vectors that have theirs already, as those of a pretrained model have."""

    def __init__(self, width: int) -> None:
        super().__init__()
        require_at_least_one(width=width)
        self.input_width = self.width = width

    def forward(
        self, embedded: Float[Tensor, "batch n input_width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n width"]:
        """The vectors themselves, zero at padding."""
        self.require_input(embedded, lengths)
        return embedded.masked_fill(padding(lengths, embedded.shape[1])[..., None], 0)


def padding(lengths: Int[Tensor, " batch"], room: int) -> Bool[Tensor, "batch room"]:
    """Which places come after a sentence.

    >>> padding(torch.tensor([1, 3]), 3)
    tensor([[False,  True,  True],
            [False, False, False]])
    """
    return torch.arange(room, device=lengths.device) >= lengths[:, None]
