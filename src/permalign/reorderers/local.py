"""Soft reordering within a small window (Huang et al., 2017)."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one, shape_of
from permalign.encoders.base import padding
from permalign.reorderers.base import Reorderer, Reordering
from permalign.shapes import Float, Int


class LocalReorderer(Reorderer):
    """Mixes each word's state with those of its neighbours, by one gate for each place of a window.

        g_t = sigmoid(W [e_{t-tau} ; ... ; e_{t+tau}] + b)          h_t = tanh(sum_i g_{t,i} e_{t-tau+i})

    It reads the head's own states and moves no word for good, so there is neither a matrix nor an order. What lies
    outside a sentence counts as zero. O(n tau^2 width).

    Args:
        width: of the head's states.
        reach: how many words to each side the window holds, tau; the paper has 3.

    >>> reorderer = LocalReorderer(width=4, reach=1)
    >>> reorderer.gates
    Linear(in_features=12, out_features=3, bias=True)
    """

    def __init__(self, width: int, reach: int = 3) -> None:
        super().__init__()
        require_at_least_one(width=width, reach=reach)
        self.width, self.reach = width, reach
        self.gates = nn.Linear((2 * reach + 1) * width, 2 * reach + 1)

    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """The mixed states, zero at padding."""
        if states.shape[-1] != self.width:
            raise ValueError(
                f"states has shape {shape_of(states)}, but this reorderer mixes states of width {self.width}. "
                f"Build it with width={states.shape[-1]}."
            )
        outside = padding(lengths, states.shape[1])[..., None]
        bordered = nn.functional.pad(states.masked_fill(outside, 0), (0, 0, self.reach, self.reach))
        windows = bordered.unfold(1, 2 * self.reach + 1, 1).transpose(2, 3)  # (batch, n, place, width)
        gates = torch.sigmoid(self.gates(windows.flatten(2)))  # (batch, n, place)
        mixed = torch.tanh((gates[..., None, :] @ windows).squeeze(2))
        return Reordering(mixed.masked_fill(outside, 0))
