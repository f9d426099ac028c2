"""Output states that attend to the source, all steps at once."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from permalign.checks import require_dropout
from permalign.heads.lstm_attention import padding_bias
from permalign.shapes import Float, Int


@dataclass(frozen=True)
class AttendedSource:
    """The source as attention reads it, projected once: keys ``W_a h_i``, values ``W_c h_i``, -inf at padding."""

    keys: Float[Tensor, "batch n hidden_size"]
    values: Float[Tensor, "batch n hidden_size"]
    bias: Float[Tensor, "batch n"]

    def select(self, rows: Int[Tensor, " new"]) -> "AttendedSource":
        """Return the source of the given rows."""
        return AttendedSource(self.keys[rows], self.values[rows], self.bias[rows])


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

    >>> attention = SourceAttention(source_size=6, hidden_size=4)
    >>> source = attention.project(torch.randn(2, 3, 6), torch.tensor([3, 1]))
    >>> attention(torch.randn(2, 5, 4), source).shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, source_size: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        require_dropout(dropout)
        self.keys = nn.Linear(source_size, hidden_size, bias=False)  # W_a
        self.values = nn.Linear(source_size, hidden_size, bias=False)  # W_c
        self.combine = nn.Linear(hidden_size, hidden_size)  # W_s and b
        self.dropout = nn.Dropout(dropout)

    def project(
        self, source: Float[Tensor, "batch n source_size"], lengths: Int[Tensor, " batch"]
    ) -> AttendedSource:
        """Return the source as every step reads it."""
        return AttendedSource(self.keys(source), self.values(source), padding_bias(lengths, source))

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
    """Stands where a head may have a `SourceAttention`, and leaves output states as they are."""

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


def source_attention(
    attention: bool, source_size: int, hidden_size: int, dropout: float
) -> SourceAttention | NoAttention:
    """Return what output states go through before the softmax, with or without attention."""
    return SourceAttention(source_size, hidden_size, dropout) if attention else NoAttention()
