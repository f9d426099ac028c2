"""States from layers of self-attention."""

from math import log

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_dropout
from permalign.encoders.base import Encoder, padding
from permalign.shapes import Float, Int


class TransformerEncoder(Encoder):
    """A Transformer with normalisation before every part (Xiong et al., 2020) and sinusoidal positions.

    Positions are computed, not stored, so a sentence may be longer than any seen in training. Under a split scorer
    the halves of a state play the roles of the two directions of a BiLSTM; the layers learn to fill them.

    Args:
        input_width: of the words' vectors, which a linear map brings to `width`.
        width: of the states, even; the feed-forward parts have four times as many units.
        layers: one on top of the other.
        attention_heads: of every layer; they share the width between them.
        dropout: the rate at which units are dropped in training, from the input and inside the layers.

    >>> encoder = TransformerEncoder(input_width=6, width=8, layers=2, attention_heads=2)
    >>> encoder(torch.randn(2, 5, 6), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self, input_width: int, width: int, layers: int = 2, attention_heads: int = 4, dropout: float = 0.0
    ) -> None:
        super().__init__()
        require_at_least_one(
            input_width=input_width, width=width, layers=layers, attention_heads=attention_heads
        )
        require_dropout(dropout)
        if width % 2 or width % attention_heads:
            raise ValueError(
                f"width is {width}, but must be even and a multiple of attention_heads ({attention_heads}), "
                "which share it. Change one of the two."
            )
        self.input_width, self.width = input_width, width
        self.project = nn.Linear(input_width, width)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            width, attention_heads, 4 * width, dropout, batch_first=True, norm_first=True
        )
        # Nested tensors cannot be had with normalisation first.
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self._draw_anew()

    def _draw_anew(self) -> None:
        """Give each layer starting weights of its own: torch has made the layers copies of one."""
        for parameter in self.layers.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(
        self, embedded: Float[Tensor, "batch n input_width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n width"]:
        """The states of all words, zero at padding."""
        self.require_input(embedded, lengths)
        outside = padding(lengths, embedded.shape[1])
        projected = self.project(embedded)
        positions = sinusoids(embedded.shape[1], self.width).to(projected)
        states: Tensor = self.layers(self.dropout(projected + positions), src_key_padding_mask=outside)
        return states.masked_fill(outside[..., None], 0)


def sinusoids(room: int, width: int) -> Float[Tensor, "room width"]:
    """Positions as waves: ``sin(p / 10000^(2c/width))`` in column 2c, the cosine in column 2c + 1.

    >>> sinusoids(2, 4)[0]
    tensor([0., 1., 0., 1.], dtype=torch.float64)
    """
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-log(10000.0) / width))
    angles = torch.arange(room, dtype=torch.float64)[:, None] * rates  # (room, width / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
