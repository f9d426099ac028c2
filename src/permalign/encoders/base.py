"""The base class of all encoders."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from permalign.checks import require_lengths, require_range, shape_of
from permalign.precision import in_low_precision
from permalign.shapes import Float, Int


def no_encoder() -> None:
    """The encoder of the kind ``none``: there is none, and embeddings are used as they are."""


class Encoder(nn.Module, ABC):
    """Turns the embeddings of words into states of the same words in their context.

    States at padding are zero, and neither padding nor the other sentences of a batch change a state. With mixed
    precision, an encoder is computed in low precision, and its states are returned in float32.

    Attributes:
        input_size: the size of the embeddings it reads.
        hidden_size: the size of its states.
        low_precision_on_cpu: whether mixed precision works on every CPU; else the encoder stays in float32 there.
    """

    input_size: int
    hidden_size: int
    low_precision_on_cpu: ClassVar[bool] = True

    def __call__(self, embedded: Tensor, *arguments: Any) -> Tensor:
        """Compute the states; see `forward`."""
        call = super().__call__
        states: Tensor = in_low_precision(call, embedded, *arguments, on_cpu=self.low_precision_on_cpu)
        return states

    @abstractmethod
    def forward(
        self, embedded: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n hidden_size"]:
        """Compute the states of all words.

        Args:
            embedded: the embeddings of the words, padded.
            lengths: the lengths of the sentences, each at least 1.
        """

    def require_input(self, embedded: Tensor, lengths: Tensor) -> None:
        """Check that the embeddings have the right size, and that the lengths fit them."""
        if embedded.dim() != 3 or embedded.shape[1] < 1 or embedded.shape[2] != self.input_size:
            raise ValueError(
                f"embedded has shape {shape_of(embedded)}, but must be (batch, n, {self.input_size}) with at least "
                "one word. Build the encoder with the input_size of these embeddings."
            )
        require_lengths("lengths", lengths, "embedded", embedded, embedded.shape[1])
        require_range("lengths", lengths, "embedded", embedded, embedded.shape[1])
