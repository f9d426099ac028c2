"""Scores for every split of a sentence, computed from the states of a BiLSTM over it."""

import torch
from torch import Tensor, nn

from permalign import kernels
from permalign.checks import (
    require_at_least_one,
    require_dropout,
    require_floats,
    require_lengths,
    require_range,
    shape_of,
)
from permalign.precision import in_low_precision
from permalign.products import Linear, linear
from permalign.shapes import Float, Int


class SplitScorer(nn.Module):
    """A two-layer perceptron on pairs of neighbouring spans, without ever building a span.

    A span is what an LSTM adds between two fenceposts, ``s_ij = [f_j - f_i ; b_{i+1} - b_{j+1}] = F_j - F_i`` with
    ``F_i = [f_i ; -b_{i+1}]``, and ``score(i,j,k) = second(dropout(relu(first([s_ij ; s_jk]))))``. Differences are
    linear, so with ``L = W_left F`` and ``R = W_right F`` (the two halves of the first layer) the hidden state is

        relu( -L_i  +  (L_j - R_j + bias)  +  R_k )

    So two projections of n + 1 fenceposts replace one of O(n^3) pairs of spans. What remains is elementwise, and fused
    into one kernel that recomputes hidden states in its backward pass. O(n input_size hidden_size + n^3 hidden_size)
    time, O(n hidden_size + n^3) memory. Dropout is drawn independently for every split and hidden unit.

    Args:
        input_size: the size of the states; the first half is the forward LSTM's, the second half the backward one's.
        hidden_size: the number of hidden units (the paper has 4 * input_size).
        dropout: dropout on the hidden units, 0 <= dropout < 1.

    >>> scorer = SplitScorer(input_size=8, hidden_size=32, dropout=0.1)
    >>> states = torch.randn(2, 7, 8)  # BOS, five words, EOS
    >>> scorer(states).shape  # twenty splits, straight and inverted
    torch.Size([2, 20, 2])
    """

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size, hidden_size=hidden_size)
        require_dropout(dropout)
        if input_size % 2:
            raise ValueError(f"input_size is {input_size}, but must be even: a forward and a backward half.")
        self.input_size, self.hidden_size, self.dropout = input_size, hidden_size, dropout
        self.first = Linear(2 * input_size, hidden_size)
        self.second = Linear(hidden_size, 2)

    def extra_repr(self) -> str:
        """What `repr` shows besides the layers."""
        return f"input_size={self.input_size}, hidden_size={self.hidden_size}, dropout={self.dropout}"

    def forward(
        self, states: Float[Tensor, "batch posts input_size"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch splits 2"]:
        """Packed scores ``(batch, T, 2)`` for `permalign.SeparablePermutation`.

        Args:
            states: ``(batch, n + 2, input_size)``, the states of a BiLSTM over BOS, the n words and EOS. In a shorter
                sentence EOS follows the last word, and the rest is padding.
            lengths: ``(batch,)``, the number of words of every sentence; None for n. Scores are zero at padding.
        """
        require_floats({"first.weight": self.first.weight, "states": states})
        if states.dim() != 3 or states.shape[1] < 3 or states.shape[2] != self.input_size:
            raise ValueError(
                f"states has shape {shape_of(states)}, but must be (batch, n + 2, {self.input_size}): "
                "BOS, at least one word, and EOS."
            )
        lengths = require_lengths("lengths", lengths, "states", states, states.shape[1] - 2)
        require_range("lengths", lengths, "states", states, states.shape[1] - 2)
        beyond = torch.arange(states.shape[1], device=states.device) >= lengths[:, None] + 2
        states = states.masked_fill(beyond[..., None], 0.0)  # padding may hold anything, NaN included
        half = self.input_size // 2
        # F_i = [f_i ; -b_{i+1}], i = 0..n
        fenceposts = torch.cat([states[:, :-1, :half], -states[:, 1:, half:]], dim=-1)
        # alternately a row of W_left and a row of W_right: two projections by one product, without moving weights
        weights = self.first.weight.view(2 * self.hidden_size, self.input_size)
        dropout = self.dropout if self.training else 0.0
        seed = torch.randint(2**62, ()) if dropout > 0 else torch.zeros((), dtype=torch.int64)
        with torch.autocast(
            states.device.type, enabled=False
        ):  # except for the projections, by `in_low_precision`
            projections = in_low_precision(linear, fenceposts, weights)
            return kernels.split_scores(
                projections.unflatten(-1, (self.hidden_size, 2)),  # (batch, n + 1, hidden, left or right)
                self.first.bias,
                self.second.weight,
                self.second.bias,
                lengths,
                seed.to(states.device),
                dropout,
            )
