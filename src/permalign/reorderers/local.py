"""Soft reordering within a small window (Huang et al., 2017)."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, shape_of
from permalign.masks import padding_mask
from permalign.reorderers.base import Reorderer, Reordering
from permalign.shapes import Float, Int


class LocalReorderer(Reorderer):
    """Mixes each word's state with those of its neighbours, by one gate for each position of a window.

        g_t = sigmoid(W [e_{t-tau} ; ... ; e_{t+tau}] + b)          h_t = tanh(sum_i g_{t,i} e_{t-tau+i})

    It mixes the head's own states and moves no word entirely, so there is neither a matrix nor an order. States
    outside a sentence are zero. O(n tau^2 input_size).

    Args:
        input_size: the size of the head's states.
        window_radius: tau, the number of neighbours on each side; the paper has 3.

    >>> reorderer = LocalReorderer(input_size=4, window_radius=1)
    >>> reorderer.gates
    Linear(in_features=12, out_features=3, bias=True)
    """

    def __init__(self, input_size: int, window_radius: int) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size, window_radius=window_radius)
        self.input_size, self.window_radius = input_size, window_radius
        window = 2 * window_radius + 1
        self.gates = nn.Linear(window * input_size, window)

    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """Mix the states; those at padding are zero."""
        if states.shape[-1] != self.input_size:
            raise ValueError(
                f"states has shape {shape_of(states)}, but this reorderer mixes states of size {self.input_size}. "
                f"Build it with input_size={states.shape[-1]}."
            )
        padding = padding_mask(lengths, states.shape[1])[..., None]
        radius = self.window_radius
        bordered = nn.functional.pad(states.masked_fill(padding, 0), (0, 0, radius, radius))
        windows = bordered.unfold(1, 2 * radius + 1, 1).transpose(2, 3)  # (batch, n, window, input_size)
        gates = torch.sigmoid(self.gates(windows.flatten(2)))  # (batch, n, window)
        mixed = torch.tanh((gates[..., None, :] @ windows).squeeze(2))
        return Reordering(mixed.masked_fill(padding, 0))
