"""Soft reordering within a small window (Huang et al., 2017)."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_rate, shape_of
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
        initial_mixing_rate: about how far the gates of neighbours are open before training, by their biases; the gate
            of the word itself is open about as far as theirs are closed. At 0.5 no bias is changed. With a lower rate,
            training begins close to the words themselves.

    >>> reorderer = LocalReorderer(input_size=4, window_radius=1)
    >>> reorderer.gates
    Linear(in_features=12, out_features=3, bias=True)
    """

    def __init__(self, input_size: int, window_radius: int, initial_mixing_rate: float = 0.5) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size, window_radius=window_radius)
        require_rate(initial_mixing_rate=initial_mixing_rate)
        self.input_size, self.window_radius = input_size, window_radius
        window = 2 * window_radius + 1
        self.gates = nn.Linear(window * input_size, window)
        odds = torch.full((window,), initial_mixing_rate / (1 - initial_mixing_rate))
        odds[window_radius] = 1 / odds[window_radius]
        with torch.no_grad():
            self.gates.bias.add_(odds.log())

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
