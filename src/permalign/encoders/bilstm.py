"""States from two LSTMs, one from each side."""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from permalign.checks import require_at_least_one, require_dropout
from permalign.encoders.base import Encoder
from permalign.shapes import Float, Int


class BiLstmEncoder(Encoder):
    """A bidirectional LSTM, as the paper has it: the first half of a state was read forward, the second backward.

    Sentences are packed, so that the backward LSTM begins at a sentence's last word and not at padding.

    Args:
        input_width: of the words' vectors.
        width: of the states, even; each direction has half of it.
        layers: one on top of the other; the paper has 1 or 2.
        dropout: the rate at which units are dropped in training, from the input and between layers.

    >>> import torch
    >>> encoder = BiLstmEncoder(input_width=6, width=8)
    >>> encoder(torch.randn(2, 5, 6), torch.tensor([5, 3])).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, input_width: int, width: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        require_at_least_one(input_width=input_width, width=width, layers=layers)
        require_dropout(dropout)
        if width % 2:
            raise ValueError(f"width is {width}, but must be even: a forward and a backward half.")
        self.input_width, self.width = input_width, width
        self.dropout = nn.Dropout(dropout)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(input_width, width // 2, layers, True, True, between, bidirectional=True)

    def forward(
        self, embedded: Float[Tensor, "batch n input_width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n width"]:
        """The states ``[forward ; backward]`` of all words, zero at padding."""
        self.require_input(embedded, lengths)
        packed = pack_padded_sequence(self.dropout(embedded), lengths.cpu(), True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], True, total_length=embedded.shape[1])
        return states
