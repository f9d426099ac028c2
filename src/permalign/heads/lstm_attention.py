"""What heads with attention share: a stack of LSTM cells, and dot-product attention over padded states."""

import torch
from torch import Tensor, nn

from permalign.masks import length_mask
from permalign.shapes import Float, Int

# the hidden state and the cell state of every layer, each (rows, hidden_size)
State = tuple[tuple[Tensor, Tensor], ...]


class LstmStack(nn.Module):
    """Stacked LSTM cells that run one step at a time, from an initial state computed from the source.

    Args:
        input_size: the size of the inputs.
        hidden_size: the size of the state of every cell.
        num_layers: the number of cells.
        dropout: dropout between one cell and the next.
        source_size: the size of the source states that `initial_state` reads.

    >>> stack = LstmStack(input_size=3, hidden_size=4, num_layers=2, dropout=0.0, source_size=6)
    >>> state = stack.initial_state(torch.randn(5, 7, 6), torch.full((5,), 7))
    >>> state = stack(torch.randn(5, 3), state)
    >>> top(state).shape
    torch.Size([5, 4])
    """

    def __init__(
        self, *, input_size: int, hidden_size: int, num_layers: int, dropout: float, source_size: int
    ) -> None:
        super().__init__()
        self.cells = nn.ModuleList(
            nn.LSTMCell(hidden_size if layer else input_size, hidden_size) for layer in range(num_layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.bridge = nn.Linear(2 * source_size, 2 * num_layers * hidden_size)

    def initial_state(
        self, source: Float[Tensor, "batch n source_size"], lengths: Int[Tensor, " batch"]
    ) -> State:
        """Compute ``tanh(bridge([h_1 ; h_n]))``, which covers the last states of both directions of a BiLSTM."""
        last = source[torch.arange(source.shape[0], device=source.device), lengths.long() - 1]
        both = self.bridge(torch.cat([source[:, 0], last], dim=-1)).tanh()
        layers = both.chunk(len(self.cells), dim=-1)
        return tuple((hidden, memory) for hidden, memory in (layer.chunk(2, dim=-1) for layer in layers))

    def forward(self, inputs: Float[Tensor, "rows input_size"], state: State) -> State:
        """Run one step of every cell."""
        after = []
        for layer, (cell, before) in enumerate(zip(self.cells, state, strict=True)):
            after.append(cell(self.dropout(inputs) if layer else inputs, before))
            inputs = after[-1][0]
        return tuple(after)


def top(state: State) -> Float[Tensor, "rows hidden_size"]:
    """Return the hidden state of the last layer."""
    return state[-1][0]


def select(state: State, rows: Int[Tensor, " new"]) -> State:
    """Return the states of the given rows."""
    return tuple((hidden[rows], memory[rows]) for hidden, memory in state)


def padding_bias(
    lengths: Int[Tensor, " batch"], like: Float[Tensor, "batch n size"]
) -> Float[Tensor, "batch n"]:
    """Return 0 within each sentence and -inf at padding, to be added to scores before a softmax.

    >>> padding_bias(torch.tensor([1, 2]), torch.zeros(2, 2, 5))
    tensor([[0., -inf],
            [0., 0.]])
    """
    return like.new_zeros(like.shape[:2]).masked_fill(~length_mask(lengths, like.shape[1]), -torch.inf)


def attention_weights(
    query: Float[Tensor, "rows size"], keys: Float[Tensor, "rows n size"], bias: Float[Tensor, "rows n"]
) -> Float[Tensor, "rows n"]:
    """Compute ``softmax_i(query . key_i + bias_i)``."""
    return torch.baddbmm(bias[..., None], keys, query[..., None]).squeeze(-1).softmax(-1)


def weighted_sum(
    weights: Float[Tensor, "rows n"], values: Float[Tensor, "rows n size"]
) -> Float[Tensor, "rows size"]:
    """Compute ``sum_i weight_i value_i``."""
    return torch.bmm(weights[:, None], values).squeeze(1)
