"""Scores of splits from projections of fenceposts, without storing a hidden state."""

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.portable import GOLDEN, HASH_MULTIPLIERS

_M1, _M2, _GOLDEN = np.uint32(HASH_MULTIPLIERS[0]), np.uint32(HASH_MULTIPLIERS[1]), np.uint32(GOLDEN)


@inlined
def mix32(value):  # type: ignore[no-untyped-def]
    """The mixer of `permalign.kernels.portable.mix32`, on uint32."""
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(16))) * _M1)
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(15))) * _M2)
    return np.uint32(value ^ (value >> np.uint32(16)))


@inlined
def split_key(seed, item, split):  # type: ignore[no-untyped-def]
    """The dropout key of one split of one sentence."""
    low, high = np.uint32(seed & 0xFFFFFFFF), np.uint32((seed >> 32) & 0xFFFFFFFF)
    return mix32(np.uint32(mix32(np.uint32(low ^ mix32(np.uint32(np.uint32(item) ^ high)))) ^ np.uint32(split)))


@compiled
def fill_mask(first_half, second_half, key, steps, threshold, scale):  # type: ignore[no-untyped-def]
    """Write the scaled dropout mask of one split; unit h and unit h + half share one hash."""
    zero = np.float32(0) * scale
    for h in range(second_half.shape[0]):
        bits = mix32(np.uint32(key + steps[h]))
        first_half[h] = scale if np.uint32(bits & np.uint32(0xFFFF)) >= threshold else zero
        second_half[h] = scale if np.uint32(bits >> np.uint32(16)) >= threshold else zero
    for h in range(second_half.shape[0], first_half.shape[0]):  # the unit in the middle, if their number is odd
        bits = mix32(np.uint32(key + steps[h]))
        first_half[h] = scale if np.uint32(bits & np.uint32(0xFFFF)) >= threshold else zero


@compiled
def hash_steps(count):  # type: ignore[no-untyped-def]
    """Multiples of the golden ratio, what a unit adds to its split's key."""
    steps = np.empty(count, np.uint32)
    for h in range(count):
        steps[h] = np.uint32(np.uint32(h) * _GOLDEN)
    return steps


@compiled
def split_scores(b, start, middle, end, weight, bias, lengths, seed, threshold, scale, splits_at, scores):  # type: ignore[no-untyped-def]
    """score(i,j,k) = weight @ dropout(relu(start_i + middle_j + end_k)) + bias; no hidden state is stored."""
    hidden, length = start.shape[2], lengths[b]
    outer, mask = np.empty_like(start[b, 0]), np.empty_like(start[b, 0])
    half = (hidden + 1) // 2
    steps, first_half, second_half = hash_steps(half), mask[:half], mask[half:]
    w_straight, w_inverted = weight[0], weight[1]
    zero = outer.dtype.type(0)
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            start_i, end_k = start[b, i], end[b, i + width]
            for h in range(hidden):
                outer[h] = start_i[h] + end_k[h]
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                middle_j = middle[b, i + 1 + inner]
                straight, inverted = zero, zero
                if threshold > 0:
                    key = split_key(seed, b, first + inner)
                    fill_mask(first_half, second_half, key, steps, threshold, scale)
                    for h in range(hidden):
                        unit = max(outer[h] + middle_j[h], zero) * mask[h]
                        straight += unit * w_straight[h]
                        inverted += unit * w_inverted[h]
                else:
                    for h in range(hidden):
                        unit = max(outer[h] + middle_j[h], zero)
                        straight += unit * w_straight[h]
                        inverted += unit * w_inverted[h]
                scores[b, first + inner, 0] = straight + bias[0]
                scores[b, first + inner, 1] = inverted + bias[1]


@compiled
def split_scores_backward(  # type: ignore[no-untyped-def]
    b,
    grad,
    start,
    middle,
    end,
    weight,
    lengths,
    seed,
    threshold,
    scale,
    splits_at,
    grad_start,
    grad_middle,
    grad_end,
    grad_weight,
    grad_bias,
):
    """Adjoints of `split_scores`; hidden states and masks are computed anew. Gradients arrive zeroed, per item."""
    hidden, length = start.shape[2], lengths[b]
    outer, grad_outer = np.empty_like(start[b, 0]), np.empty_like(start[b, 0])
    mask = np.empty_like(start[b, 0])
    mask[:] = 1
    half = (hidden + 1) // 2
    steps, first_half, second_half = hash_steps(half), mask[:half], mask[half:]
    w_straight, w_inverted = weight[0], weight[1]
    gw_straight, gw_inverted = grad_weight[b, 0], grad_weight[b, 1]
    zero = outer.dtype.type(0)
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            start_i, end_k = start[b, i], end[b, i + width]
            for h in range(hidden):
                outer[h] = start_i[h] + end_k[h]
                grad_outer[h] = zero
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                straight, inverted = grad[b, first + inner, 0], grad[b, first + inner, 1]
                if straight == zero and inverted == zero:
                    continue
                grad_bias[b, 0] += straight
                grad_bias[b, 1] += inverted
                if threshold > 0:
                    key = split_key(seed, b, first + inner)
                    fill_mask(first_half, second_half, key, steps, threshold, scale)
                middle_j, grad_middle_j = middle[b, i + 1 + inner], grad_middle[b, i + 1 + inner]
                for h in range(hidden):
                    unit = outer[h] + middle_j[h]
                    factor = mask[h] if unit > zero else zero
                    kept = unit * factor
                    gw_straight[h] += straight * kept
                    gw_inverted[h] += inverted * kept
                    grad_unit = (straight * w_straight[h] + inverted * w_inverted[h]) * factor
                    grad_middle_j[h] += grad_unit
                    grad_outer[h] += grad_unit
            grad_start_i, grad_end_k = grad_start[b, i], grad_end[b, i + width]
            for h in range(hidden):
                grad_start_i[h] += grad_outer[h]
                grad_end_k[h] += grad_outer[h]
