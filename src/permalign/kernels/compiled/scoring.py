"""Scores of splits from projections of fenceposts; no hidden state of a split is ever stored."""

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.numerics import GOLDEN, HASH_MULTIPLIERS

_M1, _M2, _GOLDEN = np.uint32(HASH_MULTIPLIERS[0]), np.uint32(HASH_MULTIPLIERS[1]), np.uint32(GOLDEN)


@inlined
def mix32(value):
    """The hash of `permalign.kernels.portable.scoring.mix32`, on uint32."""
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(16))) * _M1)
    value = np.uint32(np.uint32(value ^ (value >> np.uint32(15))) * _M2)
    return np.uint32(value ^ (value >> np.uint32(16)))


@inlined
def split_key(seed, item, split):
    """The dropout key of one split of one sentence."""
    low, high = np.uint32(seed & 0xFFFFFFFF), np.uint32((seed >> 32) & 0xFFFFFFFF)
    return mix32(
        np.uint32(mix32(np.uint32(low ^ mix32(np.uint32(np.uint32(item) ^ high)))) ^ np.uint32(split))
    )


@compiled
def fill_mask(first_half, second_half, key, steps, threshold, scale):
    """Write the scaled dropout mask of one split; unit h and unit h + half share one hash."""
    zero = np.float32(0) * scale
    for h in range(second_half.shape[0]):
        bits = mix32(np.uint32(key + steps[h]))
        first_half[h] = scale if np.uint32(bits & np.uint32(0xFFFF)) >= threshold else zero
        second_half[h] = scale if np.uint32(bits >> np.uint32(16)) >= threshold else zero
    # the unit in the middle, if their number is odd
    for h in range(second_half.shape[0], first_half.shape[0]):
        bits = mix32(np.uint32(key + steps[h]))
        first_half[h] = scale if np.uint32(bits & np.uint32(0xFFFF)) >= threshold else zero


@compiled
def hash_steps(count):
    """What each hidden unit adds to its split's key: multiples of `GOLDEN`."""
    steps = np.empty(count, np.uint32)
    for h in range(count):
        steps[h] = np.uint32(np.uint32(h) * _GOLDEN)
    return steps


@compiled
def split_scores(b, start, middle, end, weight, bias, lengths, seed, threshold, scale, splits_at, scores):
    """score(i,j,k) = weight @ dropout(relu(start_i + middle_j + end_k)) + bias.

    Splits of one span share start_i + end_k (``outer``), which is computed once for all its split points.
    """
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
def split_scores_backward(
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
    """The adjoints of `split_scores`; hidden states and dropout masks are computed again.

    The arrays of gradients must be zero at first. A hidden unit h of a split is mask * max(x, 0) with x = start_i +
    middle_j + end_k. So the adjoints of the projections and of the weights contain the same factor mask * [x > 0]:

        start_bar(i,h) = sum over splits at i and rules R of grad(split,R) * factor(split,h) * weight(R,h)
        weight_bar(R,h) = sum over splits of grad(split,R) * factor(split,h) * (start_i + middle_j + end_k)(h)

    The loop over splits therefore only collects the sums of grad * factor, for each rule, fencepost and unit
    (``straight_start``, ``inverted_start`` and so on). Multiplied by the weights at the end, they are the adjoints of
    the projections; multiplied by the projections and summed over fenceposts, those of the weights.
    """
    hidden, length = start.shape[2], lengths[b]
    outer, mask = np.empty_like(start[b, 0]), np.empty_like(start[b, 0])
    half = (hidden + 1) // 2
    steps, first_half, second_half = hash_steps(half), mask[:half], mask[half:]
    straight_outer, inverted_outer = np.empty_like(outer), np.empty_like(outer)
    straight_start, inverted_start = np.zeros_like(start[b]), np.zeros_like(start[b])
    straight_middle, inverted_middle = np.zeros_like(start[b]), np.zeros_like(start[b])
    straight_end, inverted_end = np.zeros_like(start[b]), np.zeros_like(start[b])
    zero = outer.dtype.type(0)
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            start_i, end_k = start[b, i], end[b, i + width]
            for h in range(hidden):
                outer[h] = start_i[h] + end_k[h]
                straight_outer[h] = zero
                inverted_outer[h] = zero
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                straight, inverted = grad[b, first + inner, 0], grad[b, first + inner, 1]
                if straight == zero and inverted == zero:
                    continue
                grad_bias[b, 0] += straight
                grad_bias[b, 1] += inverted
                j = i + 1 + inner
                middle_j, straight_j, inverted_j = middle[b, j], straight_middle[j], inverted_middle[j]
                if threshold > 0:
                    key = split_key(seed, b, first + inner)
                    fill_mask(first_half, second_half, key, steps, threshold, scale)
                    for h in range(hidden):
                        factor = mask[h] if outer[h] + middle_j[h] > zero else zero  # mask * [x > 0]
                        straight_j[h] += straight * factor
                        inverted_j[h] += inverted * factor
                        straight_outer[h] += straight * factor
                        inverted_outer[h] += inverted * factor
                else:
                    for h in range(hidden):
                        on = outer[h] + middle_j[h] > zero
                        straight_unit = straight if on else zero
                        inverted_unit = inverted if on else zero
                        straight_j[h] += straight_unit
                        inverted_j[h] += inverted_unit
                        straight_outer[h] += straight_unit
                        inverted_outer[h] += inverted_unit
            for h in range(hidden):
                straight_start[i, h] += straight_outer[h]
                inverted_start[i, h] += inverted_outer[h]
                straight_end[i + width, h] += straight_outer[h]
                inverted_end[i + width, h] += inverted_outer[h]
    by_role = (
        (start, straight_start, inverted_start, grad_start),
        (middle, straight_middle, inverted_middle, grad_middle),
        (end, straight_end, inverted_end, grad_end),
    )
    for projection, straight_sum, inverted_sum, grad_projection in by_role:
        for fencepost in range(length + 1):
            for h in range(hidden):
                straight, inverted = straight_sum[fencepost, h], inverted_sum[fencepost, h]
                grad_projection[b, fencepost, h] = straight * weight[0, h] + inverted * weight[1, h]
                grad_weight[b, 0, h] += straight * projection[b, fencepost, h]
                grad_weight[b, 1, h] += inverted * projection[b, fencepost, h]
