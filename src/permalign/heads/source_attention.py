"""Output states that attend to the source, all steps at once."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from permalign.checks import require_dropout
from permalign.heads.lstm_attention import State, padding_bias, select
from permalign.products import Linear
from permalign.shapes import Float, Int


@dataclass(frozen=True)
class AttendedSource:
    """The source as attention reads it, projected once: keys ``W_a h_i``, values ``W_c h_i``, -inf at padding.

    Keys may be scaled (see `key_scale`). With input feeding, there is also the initial state of the decoder.
    """

    keys: Float[Tensor, "batch n hidden_size"]
    values: Float[Tensor, "batch n hidden_size"]
    bias: Float[Tensor, "batch n"]
    initial: State = ()

    def select(self, rows: Int[Tensor, " new"]) -> "AttendedSource":
        """Return the source of the given rows."""
        initial = select(self.initial, rows)
        return AttendedSource(self.keys[rows], self.values[rows], self.bias[rows], initial)


def key_scale(hidden_size: int, scaled_attention: bool) -> float:
    """Return what keys are multiplied by: one over the square root of their size, or 1.

    A score is a product of weights and of two states, so that without a scale a few steps of training make it large,
    and attention certain of one word before it has learned which.

    >>> key_scale(256, True), key_scale(256, False)
    (0.0625, 1.0)
    """
    return float(hidden_size**-0.5) if scaled_attention else 1.0


class SourceAttention(nn.Module):
    """Attention as in Luong, Pham and Manning (2015) with "general" scores, from given output states.

    With source states ``h_i`` and output states ``s_j``,

        weights = softmax_i(s_j . W_a h_i)
        a_j     = tanh(W_c sum_i weights_i h_i + W_s s_j + b)

    A mean of projections is the projection of the mean, so the source is projected once. Nothing depends on ``a_{j-1}``
    (there is no input feeding), so that all steps are computed by the same matrix products. O(n m hidden_size) time.

    Args:
        source_size: the size of the source states.
        hidden_size: the size of the output states, before and after.
        dropout: dropout on the states that attention returns.
        scaled_attention: whether scores are divided by the square root of ``hidden_size``.

    >>> attention = SourceAttention(source_size=6, hidden_size=4)
    >>> source = attention.project(torch.randn(2, 3, 6), torch.tensor([3, 1]))
    >>> attention(torch.randn(2, 5, 4), source).shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self, source_size: int, hidden_size: int, dropout: float = 0.0, scaled_attention: bool = False
    ) -> None:
        super().__init__()
        require_dropout(dropout)
        self.key_scale = key_scale(hidden_size, scaled_attention)
        self.keys = Linear(source_size, hidden_size, bias=False)  # W_a
        self.values = Linear(source_size, hidden_size, bias=False)  # W_c
        self.combine = Linear(hidden_size, hidden_size)  # W_s and b
        self.dropout = nn.Dropout(dropout)

    def project(
        self, source: Float[Tensor, "batch n source_size"], lengths: Int[Tensor, " batch"]
    ) -> AttendedSource:
        """Return the source as every step reads it."""
        keys = self.keys(source) * self.key_scale
        return AttendedSource(keys, self.values(source), padding_bias(lengths, source))

    def forward(
        self, steps: Float[Tensor, "batch steps hidden_size"], source: AttendedSource | None
    ) -> Float[Tensor, "batch steps hidden_size"]:
        """Return ``a_j`` of all steps."""
        assert source is not None
        scores = torch.baddbmm(source.bias[:, None], steps, source.keys.transpose(1, 2))
        context = scores.softmax(-1) @ source.values  # (batch, steps, hidden_size)
        attended: Tensor = self.dropout((context + self.combine(steps)).tanh())
        return attended


class NoAttention(nn.Module):
    """Stands where there may be a `SourceAttention`, and leaves output states as they are."""

    def project(
        self, source: Float[Tensor, "batch n source_size"], lengths: Int[Tensor, " batch"]
    ) -> AttendedSource | None:
        """Return None: there is nothing to attend to."""
        return None

    def forward(
        self, steps: Float[Tensor, "batch steps hidden_size"], source: AttendedSource | None
    ) -> Float[Tensor, "batch steps hidden_size"]:
        """Return the states."""
        return steps
