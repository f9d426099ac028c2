"""A Transformer encoder."""

from math import log

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_dropout
from permalign.encoders.base import Encoder
from permalign.masks import padding_mask
from permalign.shapes import Float, Int


class TransformerEncoder(Encoder):
    """A Transformer with layer normalisation before every sublayer (Xiong et al., 2020) and sinusoidal positions.

    Position embeddings are computed, not stored, so a sentence may be longer than any seen in training. A split scorer
    treats the two halves of a state as the two directions of a BiLSTM; the layers learn what to put into them.

    Args:
        input_size: the size of the embeddings, which a linear layer maps to `hidden_size`.
        hidden_size: the size of the states, even; the feed-forward layers have four times as many units.
        num_layers: the number of layers.
        num_heads: the number of attention heads, which share `hidden_size` equally.
        dropout: dropout on the input and inside the layers.

    >>> encoder = TransformerEncoder(input_size=6, hidden_size=8, num_layers=2, num_heads=2)
    >>> encoder(torch.randn(2, 5, 6), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, num_heads: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        require_at_least_one(
            input_size=input_size, hidden_size=hidden_size, num_layers=num_layers, num_heads=num_heads
        )
        require_dropout(dropout)
        if hidden_size % 2 or hidden_size % num_heads:
            raise ValueError(
                f"hidden_size is {hidden_size}, but must be even and a multiple of num_heads ({num_heads}). Change one "
                "of the two."
            )
        self.input_size, self.hidden_size = input_size, hidden_size
        self.project = nn.Linear(input_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            hidden_size, num_heads, 4 * hidden_size, dropout, batch_first=True, norm_first=True
        )
        # PyTorch has no nested tensors for layers that normalise first.
        self.layers = nn.TransformerEncoder(
            layer, num_layers, nn.LayerNorm(hidden_size), enable_nested_tensor=False
        )
        self._initialise_layers()

    def _initialise_layers(self) -> None:
        """Draw separate initial weights for each layer: `torch.nn.TransformerEncoder` makes copies of one layer."""
        for parameter in self.layers.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(
        self, embedded: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n hidden_size"]:
        """Compute the states of all words, zero at padding."""
        self.require_input(embedded, lengths)
        padding = padding_mask(lengths, embedded.shape[1])
        projected = self.project(embedded)
        positions = sinusoids(embedded.shape[1], self.hidden_size).to(projected)
        states: Tensor = self.layers(self.dropout(projected + positions), src_key_padding_mask=padding)
        return states.masked_fill(padding[..., None], 0)


def sinusoids(length: int, size: int) -> Float[Tensor, "length size"]:
    """Encode positions as waves: ``sin(p / 10000^(2c/size))`` in column 2c, the cosine in column 2c + 1.

    >>> sinusoids(2, 4)[0]
    tensor([0., 1., 0., 1.], dtype=torch.float64)
    """
    rates = torch.exp(torch.arange(0, size, 2, dtype=torch.float64) * (-log(10000.0) / size))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates  # (length, size / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
