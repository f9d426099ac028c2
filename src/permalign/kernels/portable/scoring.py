"""Scores of splits from projections of fenceposts, in plain torch."""

import torch
from torch import Tensor

from permalign.kernels.layout import mask_padding, pack_blocks, split_offset
from permalign.kernels.numerics import GOLDEN, HASH_MULTIPLIERS, dropout_scale


def mix32(value: Tensor) -> Tensor:
    """A bijection of 32-bit integers (int32) whose output bits look independent of its input's.

    Two rounds of xor-shift and multiply; `permalign.kernels.compiled.scoring.mix32` computes the same bits, unsigned.
    Products wrap around. Shifts of signed numbers copy the sign, so what they shift in is masked.
    """
    value = value ^ ((value >> 16) & 0xFFFF)
    value *= _signed(HASH_MULTIPLIERS[0])
    value ^= (value >> 15) & 0x1FFFF
    value *= _signed(HASH_MULTIPLIERS[1])
    value ^= (value >> 16) & 0xFFFF
    return value


def _signed(bits: int) -> int:
    """The signed integer with the same 32 bits."""
    return bits - 2**32 if bits >= 2**31 else bits


def kept_units(seed: Tensor, items: Tensor, splits: Tensor, hidden: int, dropout: float) -> Tensor:
    """Which hidden units are kept, ``(items, splits, hidden)``: a hash of the arguments, so that it can be repeated.

    Every (seed, sentence, split) has a key; unit h of the first half and unit h + half of the second are decided
    by the low and the high 16 bits of one hash of (key, h).
    """
    half, (threshold, _) = (hidden + 1) // 2, dropout_scale(dropout)
    low_seed, high_seed = seed.to(torch.int32), (seed >> 32).to(torch.int32)
    items, splits = items.to(torch.int32), splits.to(torch.int32)
    key = mix32(mix32(low_seed ^ mix32(items[:, None] ^ high_seed)) ^ splits)  # (items, splits)
    units = torch.arange(half, device=seed.device, dtype=torch.int32)
    bits = mix32(key[..., None] + units * _signed(GOLDEN))
    halves = (bits & 0xFFFF) >= threshold, ((bits >> 16) & 0xFFFF) >= threshold
    return torch.cat(halves, dim=-1)[..., :hidden]


def by_role(projections: Tensor, hidden_bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What a fencepost adds to the hidden units of a split as its start, as its middle and as its end."""
    left, right = projections.unbind(-1)
    return -left, left - right + hidden_bias, right


def split_scores(
    projections: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> Tensor:
    """Score every split from two projections of the fenceposts; O(n^3 H).

        score(i,j,k) = weight @ dropout(relu(start_i + middle_j + end_k)) + bias
        start_i = -left_i,   middle_j = left_j - right_j + hidden_bias,   end_k = right_k

    Args:
        projections: ``(batch, n + 1, hidden, 2)``, of every fencepost: ``left`` by the weights of the left span of a
            split, and ``right`` by those of the right span.
        hidden_bias: ``(hidden,)``, the bias of the hidden units.
        weight: ``(2, hidden)``, the output layer, one row for each rule.
        bias: ``(2,)``, the bias of the output layer.
        lengths: ``(batch,)``, the sentences' lengths; scores are zero at padding.
        seed: one int64; the dropout mask of a split depends on it, on the sentence's index in the batch and on the
            split.
        dropout: the probability that a hidden unit is dropped.
    """
    batch, max_length, hidden = projections.shape[0], projections.shape[1] - 1, projections.shape[2]
    start, middle, end = by_role(projections, hidden_bias)
    items = torch.arange(batch, device=projections.device)
    blocks = []
    for width in range(2, max_length + 1):
        starts = max_length - width + 1
        inner = (
            torch.arange(1, width, device=start.device) + torch.arange(starts, device=start.device)[:, None]
        )
        outer = (start[:, :starts] + end[:, width:])[:, :, None]
        units = (outer + middle[:, inner]).relu()  # (batch, start, split, hidden)
        if dropout > 0:
            splits = torch.arange(
                split_offset(max_length, width), split_offset(max_length, width + 1), device=start.device
            )
            mask = kept_units(seed, items, splits, hidden, dropout)
            units = units * mask.view_as(units) * dropout_scale(dropout)[1]
        blocks.append(units @ weight.T + bias)
    # a sentence of one token has no scores, but its empty tensor must be attached to the inputs
    no_scores = (start + middle + end)[:, :0] @ weight.T + bias
    return mask_padding(pack_blocks(blocks, no_scores), lengths)
