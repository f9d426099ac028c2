"""An encoder whose states depend on neighbouring words only."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_dropout
from permalign.encoders.base import Encoder
from permalign.masks import padding_mask
from permalign.products import Linear
from permalign.shapes import Float, Int


class WindowEncoder(Encoder):
    """States of the word itself and of the words around it: ``[V x_t ; relu(W [x_{t-r} .. x_{t+r}] + b)]``.

    The state of an LSTM depends on the whole sentence, so a model can learn associations with distant words that fail
    in sentences composed differently. Here a state depends only on its word and r neighbours on each side. O(n).

    Args:
        input_size: the size of the embeddings.
        hidden_size: the size of the states, even; one half is the word's own.
        window_radius: r, the number of neighbours on each side.
        dropout: dropout on the embeddings.

    >>> encoder = WindowEncoder(input_size=6, hidden_size=8, window_radius=1)
    >>> encoder(torch.randn(2, 5, 6), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, input_size: int, hidden_size: int, window_radius: int, dropout: float = 0.0) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size, hidden_size=hidden_size, window_radius=window_radius)
        require_dropout(dropout)
        if hidden_size % 2:
            raise ValueError(
                f"hidden_size is {hidden_size}, but must be even: one half for the word, one for its window."
            )
        self.input_size, self.hidden_size, self.window_radius = input_size, hidden_size, window_radius
        self.dropout = nn.Dropout(dropout)
        self.word = Linear(input_size, hidden_size // 2, bias=False)
        self.around = nn.Conv1d(input_size, hidden_size // 2, 2 * window_radius + 1, padding=window_radius)

    def forward(
        self, embedded: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n hidden_size"]:
        """Compute the states ``[word ; window]``, zero at padding; windows see zeros beyond the ends of a sentence."""
        self.require_input(embedded, lengths)
        padding = padding_mask(lengths, embedded.shape[1])[..., None]
        embedded = self.dropout(embedded).masked_fill(padding, 0)
        around = self.around(embedded.transpose(1, 2)).transpose(1, 2).relu()
        return torch.cat([self.word(embedded), around], dim=-1).masked_fill(padding, 0)
