"""The network that writes one segment of an output."""

import torch
from torch import Tensor, nn

from permalign.shapes import Float


class SegmentLstm(nn.Module):
    """An LSTM that begins where a source cell and the words written so far meet.

    Its first state, ``tanh(P h_t + Q s_j + b)``, is that of a segment with no word yet; each word it reads gives the
    next. Both the first states and what words do to the gates are sums of projections, made once for every cell, every
    start and every word and not for every pair of a cell and a start.

    Args:
        cell_width: of the source cells ``h_t``.
        step_width: of the output's states ``s_j``.
        embedding: width of the words it reads.
        hidden: width of its states.

    >>> network = SegmentLstm(cell_width=4, step_width=5, embedding=3, hidden=6)
    >>> state = network.begin(network.from_cells(torch.randn(2, 4)), network.from_steps(torch.randn(2, 5)))
    >>> state, memory = network(network.from_words(torch.randn(2, 3)), *state)
    >>> state.shape
    torch.Size([2, 6])
    """

    def __init__(self, cell_width: int, step_width: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.from_cells = nn.Linear(cell_width, 2 * hidden)  # P and b
        self.from_steps = nn.Linear(step_width, 2 * hidden, bias=False)  # Q
        self.from_words = nn.Linear(embedding, 4 * hidden)
        self.from_states = nn.Linear(hidden, 4 * hidden, bias=False)

    def begin(
        self, cells: Float[Tensor, "*#rows both"], steps: Float[Tensor, "*#rows both"]
    ) -> tuple[Float[Tensor, "*#rows hidden"], Float[Tensor, "*#rows hidden"]]:
        """The first state and memory, from cells and steps as `from_cells` and `from_steps` project them."""
        state, memory = (cells + steps).tanh().chunk(2, dim=-1)
        return state, memory

    def forward(
        self,
        words: Float[Tensor, "*#rows gates"],
        state: Float[Tensor, "*#rows hidden"],
        memory: Float[Tensor, "*#rows hidden"],
    ) -> tuple[Float[Tensor, "*#rows hidden"], Float[Tensor, "*#rows hidden"]]:
        """The state and memory after one more word, which `from_words` has projected."""
        gates: Tensor = words + self.from_states(state)
        take, keep, show, new = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(keep) * memory + torch.sigmoid(take) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(memory), memory
