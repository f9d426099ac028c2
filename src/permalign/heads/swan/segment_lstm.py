"""The LSTM that writes one segment of an output."""

import torch
from torch import Tensor, nn

from permalign.products import Linear
from permalign.shapes import Float


class SegmentLstm(nn.Module):
    """An LSTM that starts from a source cell and the state of the output written so far.

    Its initial state, ``tanh(P h_t + Q s_j + b)``, is that of an empty segment; each token it reads gives the next.
    Initial states and gates are sums of projections, which are computed once for every cell, every start and every
    token, instead of for every pair of a cell and a start.

    Args:
        cell_size: the size of the source cells ``h_t``.
        step_size: the size of the states of the output ``s_j``.
        embedding_dim: the size of the embeddings it reads.
        hidden_size: the size of its states.

    >>> lstm = SegmentLstm(cell_size=4, step_size=5, embedding_dim=3, hidden_size=6)
    >>> state = lstm.begin(lstm.from_cells(torch.randn(2, 4)), lstm.from_steps(torch.randn(2, 5)))
    >>> state, memory = lstm(lstm.from_words(torch.randn(2, 3)), *state)
    >>> state.shape
    torch.Size([2, 6])
    """

    def __init__(self, cell_size: int, step_size: int, embedding_dim: int, hidden_size: int) -> None:
        super().__init__()
        self.from_cells = Linear(cell_size, 2 * hidden_size)  # P and b
        self.from_steps = Linear(step_size, 2 * hidden_size, bias=False)  # Q
        self.from_words = Linear(embedding_dim, 4 * hidden_size)
        self.from_states = Linear(hidden_size, 4 * hidden_size, bias=False)

    def begin(
        self, cells: Float[Tensor, "*#rows both"], steps: Float[Tensor, "*#rows both"]
    ) -> tuple[Float[Tensor, "*#rows hidden_size"], Float[Tensor, "*#rows hidden_size"]]:
        """Return the initial hidden and cell state, from what `from_cells` and `from_steps` project."""
        state, memory = (cells + steps).tanh().chunk(2, dim=-1)
        return state, memory

    def forward(
        self,
        gates: Float[Tensor, "*#rows gates"],
        state: Float[Tensor, "*#rows hidden_size"],
        memory: Float[Tensor, "*#rows hidden_size"],
    ) -> tuple[Float[Tensor, "*#rows hidden_size"], Float[Tensor, "*#rows hidden_size"]]:
        """Return the hidden and cell state after one more token, which `from_words` has projected to gates."""
        gates = gates + self.from_states(state)
        input_gate, forget_gate, output_gate, update = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(forget_gate) * memory + torch.sigmoid(input_gate) * torch.tanh(update)
        return torch.sigmoid(output_gate) * torch.tanh(memory), memory
