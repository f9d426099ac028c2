"""A bidirectional LSTM."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from permalign.checks import require_at_least_one, require_dropout
from permalign.encoders.base import Encoder
from permalign.shapes import Float, Int


class BiLstmEncoder(Encoder):
    """A bidirectional LSTM, the paper's encoder: one half of a state is read forward, the other half backward.

    Sentences are packed, so that the backward LSTM starts at the last word of a sentence and not at padding.

    Args:
        input_size: the size of the embeddings.
        hidden_size: the size of the states, even; each direction has one half.
        num_layers: the number of layers; the paper has 1 or 2.
        dropout: dropout on the input and between layers.
        output_dropout: dropout on the states.

    >>> import torch
    >>> encoder = BiLstmEncoder(input_size=6, hidden_size=8)
    >>> encoder(torch.randn(2, 5, 6), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    low_precision_on_cpu: ClassVar[bool] = False  # some CPUs have no LSTM in bfloat16

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        require_dropout(dropout)
        require_dropout(output_dropout)
        if hidden_size % 2:
            raise ValueError(
                f"hidden_size is {hidden_size}, but must be even: a forward and a backward half."
            )
        self.input_size, self.hidden_size = input_size, hidden_size
        self.dropout, self.output_dropout = nn.Dropout(dropout), nn.Dropout(output_dropout)
        self.lstm = nn.LSTM(
            input_size,
            hidden_size // 2,
            num_layers,
            batch_first=True,
            dropout=dropout if num_layers > 1 else 0.0,
            bidirectional=True,
        )

    def forward(
        self, embedded: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n hidden_size"]:
        """Compute the states ``[forward ; backward]`` of all words, zero at padding."""
        self.require_input(embedded, lengths)
        packed = pack_padded_sequence(self.dropout(embedded), lengths.cpu(), True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], True, total_length=embedded.shape[1])
        dropped: Tensor = self.output_dropout(states)
        return dropped
