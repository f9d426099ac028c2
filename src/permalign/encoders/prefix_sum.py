"""An encoder that can count: its states contain running sums over all words on one side."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_dropout
from permalign.encoders.base import Encoder
from permalign.masks import padding_mask
from permalign.shapes import Float, Int


class PrefixSumEncoder(Encoder):
    """States of the word itself and of sums over all words up to it: ``[tanh(W x_t) ; sum_{u <= t} V x_u]``.

    One half of a state is computed from left to right in this way, the other half from right to left. The state of an
    LSTM is squashed, so what it counts (open brackets, say) becomes inexact in sentences deeper than those of training.
    A sum stays exact: the difference of two fenceposts of a split scorer is the sum over the words between them, at any
    depth and any length. Everything else in a state depends on its own word only, so nothing about a longer sentence is
    new to the layers above. O(n).

    Args:
        input_size: the size of the embeddings.
        hidden_size: the size of the states, even; each direction has one half.
        num_sums: how many units of each half are sums; fewer than ``hidden_size / 2``.
        dropout: dropout on the words' own units, but not on sums, which would no longer count.

    >>> encoder = PrefixSumEncoder(input_size=6, hidden_size=8, num_sums=1)
    >>> encoder(torch.randn(2, 5, 6), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, input_size: int, hidden_size: int, num_sums: int, dropout: float = 0.0) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size, hidden_size=hidden_size, num_sums=num_sums)
        require_dropout(dropout)
        if hidden_size % 2 or num_sums >= hidden_size // 2:
            raise ValueError(
                f"hidden_size is {hidden_size} and num_sums is {num_sums}, but hidden_size must be even, and each half "
                "of it needs room for the sums and at least one unit of the word."
            )
        self.input_size, self.hidden_size, self.num_sums = input_size, hidden_size, num_sums
        self.dropout = nn.Dropout(dropout)
        self.word = nn.Linear(input_size, hidden_size - 2 * num_sums)
        self.summand = nn.Linear(input_size, 2 * num_sums, bias=False)

    def forward(
        self, embedded: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n hidden_size"]:
        """Compute the states of all words, zero at padding; the first half from the left, the second from the right."""
        self.require_input(embedded, lengths)
        padding = padding_mask(lengths, embedded.shape[1])[..., None]
        before, after = self.word(self.dropout(embedded)).tanh().chunk(2, dim=-1)
        from_left, from_right = self.summand(embedded).masked_fill(padding, 0).chunk(2, dim=-1)
        from_right = from_right.flip(1).cumsum(1).flip(1)
        states = torch.cat([before, from_left.cumsum(1), after, from_right], dim=-1)
        return states.masked_fill(padding, 0)
