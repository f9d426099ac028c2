"""States that count: sums over all words on one side."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_dropout
from permalign.encoders.base import Encoder, padding
from permalign.shapes import Float, Int


class SummingEncoder(Encoder):
    """The word itself, and sums over all words up to it: ``[tanh(W x_t) ; sum_{u <= t} V x_u]`` from either side.

    The state of an LSTM is squashed, so that what it counts (open brackets, say) runs together in sentences deeper
    than those it was trained on. A sum is not: the difference of two fenceposts of a split scorer is then the sum of
    what stands between them, the same at any depth and any length. Everything else a state knows is its own word, so
    nothing about a longer sentence is new to what reads it. O(n).

    Args:
        input_width: of the words' vectors.
        width: of the states, even; each direction has half of it.
        sums: how many of a half's units are sums, fewer than half the width.
        dropout: the rate at which units of the words are dropped in training; sums lose nothing, or they would not
            count.

    >>> encoder = SummingEncoder(input_width=6, width=8, sums=1)
    >>> encoder(torch.randn(2, 5, 6), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, input_width: int, width: int, sums: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        require_at_least_one(input_width=input_width, width=width, sums=sums)
        require_dropout(dropout)
        if width % 2 or sums >= width // 2:
            raise ValueError(
                f"width is {width} and sums is {sums}, but the width must be even and each half of it needs room for "
                "the sums and at least one unit of the word."
            )
        self.input_width, self.width, self.sums = input_width, width, sums
        self.dropout = nn.Dropout(dropout)
        self.word = nn.Linear(input_width, width - 2 * sums)
        self.summand = nn.Linear(input_width, 2 * sums, bias=False)

    def forward(
        self, embedded: Float[Tensor, "batch n input_width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n width"]:
        """The states of all words, zero at padding; the first half from the left, the second from the right."""
        self.require_input(embedded, lengths)
        outside = padding(lengths, embedded.shape[1])[..., None]
        before, after = self.word(self.dropout(embedded)).tanh().chunk(2, dim=-1)
        from_left, from_right = self.summand(embedded).masked_fill(outside, 0).chunk(2, dim=-1)
        from_right = from_right.flip(1).cumsum(1).flip(1)
        states = torch.cat([before, from_left.cumsum(1), after, from_right], dim=-1)
        return states.masked_fill(outside, 0)
