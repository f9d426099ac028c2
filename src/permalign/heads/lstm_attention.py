"""What decoders that attend to the source share: a stack of LSTM cells, and attention over padded states."""

import torch
from torch import Tensor, nn

from permalign.masks import length_mask
from permalign.shapes import Float, Int

# hidden state and memory of every layer, each (rows, hidden)
State = tuple[tuple[Tensor, Tensor], ...]


class LstmStack(nn.Module):
    """LSTM cells on top of each other, one step at a time; their first states are read off the source.

    Args:
        width: of the inputs.
        hidden: of every cell.
        layers: how many cells.
        dropout: between one cell and the next.
        source_width: of the source states that `begin` reads.

    >>> stack = LstmStack(width=3, hidden=4, layers=2, dropout=0.0, source_width=6)
    >>> state = stack.begin(torch.randn(5, 7, 6), torch.full((5,), 7))
    >>> state = stack(torch.randn(5, 3), state)
    >>> top(state).shape
    torch.Size([5, 4])
    """

    def __init__(self, *, width: int, hidden: int, layers: int, dropout: float, source_width: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(hidden if layer else width, hidden) for layer in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.bridge = nn.Linear(2 * source_width, 2 * layers * hidden)

    def begin(self, source: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]) -> State:
        """First states, ``tanh(bridge([h_1 ; h_n]))``: a BiLSTM's last states in either direction are among these."""
        last = source[torch.arange(source.shape[0], device=source.device), lengths.long() - 1]
        parts = self.bridge(torch.cat([source[:, 0], last], dim=-1)).tanh()
        layers = parts.chunk(len(self.cells), dim=-1)
        return tuple((hidden, memory) for hidden, memory in (layer.chunk(2, dim=-1) for layer in layers))

    def forward(self, inputs: Float[Tensor, "rows width"], state: State) -> State:
        """One step of every cell."""
        after = []
        for layer, (cell, before) in enumerate(zip(self.cells, state, strict=True)):
            after.append(cell(self.dropout(inputs) if layer else inputs, before))
            inputs = after[-1][0]
        return tuple(after)


def top(state: State) -> Tensor:
    """What the last layer says, ``(rows, hidden)``."""
    return state[-1][0]


def select(state: State, rows: Tensor) -> State:
    """The states of some rows."""
    return tuple((hidden[rows], memory[rows]) for hidden, memory in state)


def padding_bias(lengths: Tensor, like: Float[Tensor, "batch n width"]) -> Float[Tensor, "batch n"]:
    """Zero where a sentence has a word and -inf after it, to be added to scores before a softmax.

    >>> padding_bias(torch.tensor([1, 2]), torch.zeros(2, 2, 5))
    tensor([[0., -inf],
            [0., 0.]])
    """
    return like.new_zeros(like.shape[:2]).masked_fill(~length_mask(lengths, like.shape[1]), -torch.inf)


def attention_weights(
    query: Float[Tensor, "rows hidden"], keys: Float[Tensor, "rows n hidden"], bias: Float[Tensor, "rows n"]
) -> Float[Tensor, "rows n"]:
    """``softmax_i(query . key_i)`` over the words of every sentence."""
    return torch.baddbmm(bias[..., None], keys, query[..., None]).squeeze(-1).softmax(-1)


def weighted_sum(
    weights: Float[Tensor, "rows n"], values: Float[Tensor, "rows n width"]
) -> Float[Tensor, "rows width"]:
    """``sum_i weight_i value_i``."""
    return torch.bmm(weights[:, None], values).squeeze(1)
