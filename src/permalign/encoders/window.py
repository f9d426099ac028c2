"""States that see the words next to them and no others."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_dropout
from permalign.encoders.base import Encoder, padding
from permalign.shapes import Float, Int


class WindowEncoder(Encoder):
    """The word itself, and a layer over the words around it: ``[V x_t ; relu(W [x_{t-r} .. x_{t+r}] + b)]``.

    An LSTM tells every word about the whole sentence, so that one word can stand in for another, far away; what is
    learned of whole sentences then fails in sentences put together differently. Here a word knows its neighbours
    alone. O(n).

    Args:
        input_width: of the words' vectors.
        width: of the states, even; one half is the word's own.
        reach: r, how far to either side the window goes.
        dropout: the rate at which units of the words are dropped in training.

    >>> encoder = WindowEncoder(input_width=6, width=8)
    >>> encoder(torch.randn(2, 5, 6), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, input_width: int, width: int, reach: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        require_at_least_one(input_width=input_width, width=width, reach=reach)
        require_dropout(dropout)
        if width % 2:
            raise ValueError(
                f"width is {width}, but must be even: one half for the word, one for its window."
            )
        self.input_width, self.width, self.reach = input_width, width, reach
        self.dropout = nn.Dropout(dropout)
        self.word = nn.Linear(input_width, width // 2, bias=False)
        self.around = nn.Conv1d(input_width, width // 2, 2 * reach + 1, padding=reach)

    def forward(
        self, embedded: Float[Tensor, "batch n input_width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n width"]:
        """The states ``[word ; window]`` of all words, zero at padding; beyond the ends windows see zeros."""
        self.require_input(embedded, lengths)
        outside = padding(lengths, embedded.shape[1])[..., None]
        embedded = self.dropout(embedded).masked_fill(outside, 0)
        around = self.around(embedded.transpose(1, 2)).transpose(1, 2).relu()
        return torch.cat([self.word(embedded), around], dim=-1).masked_fill(outside, 0)
