"""Scores of splits from projections of fenceposts; no hidden state of a split is ever stored."""

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.sums_over_middles import (
    VECTOR_BYTES,
    sum_over_middles,
    sum_over_middles_with_dropout,
)
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
def by_role(projections, hidden_bias):
    """What a fencepost adds to the hidden units of a split as its start, as its middle and as its end."""
    fenceposts, hidden = projections.shape[0], projections.shape[1]
    start = np.empty((fenceposts, hidden), projections.dtype)
    middle, end = np.empty_like(start), np.empty_like(start)
    for fencepost in range(fenceposts):
        for h in range(hidden):
            left, right = projections[fencepost, h, 0], projections[fencepost, h, 1]
            start[fencepost, h] = -left
            middle[fencepost, h] = left - right + hidden_bias[h]
            end[fencepost, h] = right
    return start, middle, end


@inlined
def split_at(splits_at, i, j, k):
    """The index of a split in the packed layout."""
    return splits_at[k - i] + i * (k - i - 1) + j - i - 1


@compiled
def plain_sums(outer, end, w_straight, w_inverted):
    """The sums of one split over its hidden units, for each rule."""
    zero = outer.dtype.type(0)
    straight, inverted = zero, zero
    for h in range(outer.shape[0]):
        unit = max(outer[h] + end[h], zero)
        straight += unit * w_straight[h]
        inverted += unit * w_inverted[h]
    return straight, inverted


@compiled
def masked_sums(outer, end, mask, w_straight, w_inverted):
    """The sums of one split over its hidden units, for each rule, with dropout."""
    zero = outer.dtype.type(0)
    straight, inverted = zero, zero
    for h in range(outer.shape[0]):
        unit = max(outer[h] + end[h], zero) * mask[h]
        straight += unit * w_straight[h]
        inverted += unit * w_inverted[h]
    return straight, inverted


@compiled
def four_sums(first, second, end, next_end, w_straight, w_inverted, sums):
    """The sums of the splits that combine two starts (with one middle) and two ends; each row is read once for all."""
    zero = first.dtype.type(0)
    straight_0, inverted_0, straight_1, inverted_1 = zero, zero, zero, zero
    straight_2, inverted_2, straight_3, inverted_3 = zero, zero, zero, zero
    for h in range(first.shape[0]):
        straight, inverted = w_straight[h], w_inverted[h]
        unit = max(first[h] + end[h], zero)
        straight_0 += unit * straight
        inverted_0 += unit * inverted
        unit = max(first[h] + next_end[h], zero)
        straight_1 += unit * straight
        inverted_1 += unit * inverted
        unit = max(second[h] + end[h], zero)
        straight_2 += unit * straight
        inverted_2 += unit * inverted
        unit = max(second[h] + next_end[h], zero)
        straight_3 += unit * straight
        inverted_3 += unit * inverted
    sums[0, 0], sums[0, 1], sums[1, 0], sums[1, 1] = straight_0, inverted_0, straight_1, inverted_1
    sums[2, 0], sums[2, 1], sums[3, 0], sums[3, 1] = straight_2, inverted_2, straight_3, inverted_3


@compiled
def split_scores(
    task,
    parts,
    projections,
    hidden_bias,
    weight,
    bias,
    lengths,
    seed,
    threshold,
    scale,
    splits_at,
    scores,
):
    """score(i,j,k) = weight @ dropout(relu(start_i + middle_j + end_k)) + bias.

    The splits of a sentence are divided into parts by their middle j, which are computed one by one. All splits with
    the middle j share start_i + middle_j, for every i (``first``, ``second``). Without dropout, splits are computed
    four at a time, for two starts and two ends.
    """
    b, part = task // parts, task % parts
    hidden, length = projections.shape[2], lengths[b]
    start, middle, end = by_role(projections[b, : length + 1], hidden_bias)
    first, second, mask = np.empty_like(start[0]), np.empty_like(start[0]), np.empty_like(start[0])
    half = (hidden + 1) // 2
    steps, first_half, second_half = hash_steps(half), mask[:half], mask[half:]
    w_straight, w_inverted = weight[0], weight[1]
    sums = np.empty((4, 2), start.dtype)
    for j in range(1 + part, length, parts):
        middle_j = middle[j]
        for i in range(0, j, 2):
            is_pair = i + 1 < j
            start_i = start[i]
            for h in range(hidden):
                first[h] = start_i[h] + middle_j[h]
            remaining = j + 1  # the first end whose splits are not computed four at a time
            if is_pair:
                start_i = start[i + 1]
                for h in range(hidden):
                    second[h] = start_i[h] + middle_j[h]
                if threshold == 0:
                    for k in range(j + 1, length, 2):
                        four_sums(first, second, end[k], end[k + 1], w_straight, w_inverted, sums)
                        for split in range(4):
                            at = split_at(splits_at, i + split // 2, j, k + split % 2)
                            scores[b, at, 0] = sums[split, 0] + bias[0]
                            scores[b, at, 1] = sums[split, 1] + bias[1]
                    remaining += (length - j) // 2 * 2
            for k in range(remaining, length + 1):
                for other in range(2 if is_pair else 1):
                    outer = second if other else first
                    at = split_at(splits_at, i + other, j, k)
                    if threshold > 0:
                        fill_mask(first_half, second_half, split_key(seed, b, at), steps, threshold, scale)
                        straight, inverted = masked_sums(outer, end[k], mask, w_straight, w_inverted)
                    else:
                        straight, inverted = plain_sums(outer, end[k], w_straight, w_inverted)
                    scores[b, at, 0] = straight + bias[0]
                    scores[b, at, 1] = inverted + bias[1]


@compiled
def in_blocks(rows):
    """Rows ``(fencepost, hidden)`` as `sum_over_middles` reads them, with zeros beyond the last fencepost and unit."""
    fenceposts, hidden = rows.shape
    lanes, half = VECTOR_BYTES // rows.itemsize, (hidden + 1) // 2
    num_blocks = (half + lanes - 1) // lanes
    blocks = np.zeros((num_blocks, fenceposts + 2, 2, lanes), rows.dtype)
    for which, first, last in ((0, 0, half), (1, half, hidden)):
        for fencepost in range(fenceposts):
            for block in range(num_blocks):
                at = first + block * lanes
                for lane in range(min(lanes, last - at)):
                    blocks[block, fencepost, which, lane] = rows[fencepost, at + lane]
    return blocks


@compiled
def from_blocks(blocks, like, scale):
    """The sums of `sum_over_middles`, times ``scale``, for each rule as rows ``(fencepost, hidden)``."""
    fenceposts, hidden = like.shape
    num_blocks, lanes, half = blocks.shape[0], VECTOR_BYTES // like.itemsize, (hidden + 1) // 2
    straight, inverted = np.empty_like(like), np.empty_like(like)
    for which, first, last in ((0, 0, half), (1, half, hidden)):
        for fencepost in range(fenceposts):
            for block in range(num_blocks):
                at = first + block * lanes
                for lane in range(min(lanes, last - at)):
                    straight[fencepost, at + lane] = scale * blocks[block, fencepost, 0, which, lane]
                for lane in range(min(lanes, last - at)):
                    inverted[fencepost, at + lane] = scale * blocks[block, fencepost, 1, which, lane]
    return straight, inverted


@compiled
def gather_splits(b, i, length, grad, seed, threshold, splits_at, grads, keys, grad_bias):
    """The gradients and dropout keys of the splits with the starts i and i + 1, in the order of `sum_over_middles`."""
    zero = grad.dtype.type(0)
    at = 0
    for k in range(i + 2, length + 1, 2):
        for j in range(i + 1, k + 1):
            for start in range(2):
                for end in range(2):
                    if i + start < j and j < k + end and k + end <= length:
                        split = split_at(splits_at, i + start, j, k + end)
                        straight, inverted = grad[b, split, 0], grad[b, split, 1]
                        grads[at, start, end, 0], grads[at, start, end, 1] = straight, inverted
                        grad_bias[0] += straight
                        grad_bias[1] += inverted
                        if threshold > 0:
                            keys[at, start, end] = split_key(seed, b, split)
                    else:
                        grads[at, start, end, 0], grads[at, start, end, 1] = zero, zero
            at += 1


@compiled
def finish_fencepost(
    of_start,
    of_middle,
    of_end,
    w_straight,
    w_inverted,
    grad_projections,
    grad_hidden_bias,
    grad_straight,
    grad_inverted,
):
    """From the sums of a fencepost in each of its roles, compute its adjoints, and add to those of all fenceposts."""
    start, straight_start, inverted_start = of_start
    middle, straight_middle, inverted_middle = of_middle
    end, straight_end, inverted_end = of_end
    for h in range(len(start)):
        start_bar = straight_start[h] * w_straight[h] + inverted_start[h] * w_inverted[h]
        middle_bar = straight_middle[h] * w_straight[h] + inverted_middle[h] * w_inverted[h]
        end_bar = straight_end[h] * w_straight[h] + inverted_end[h] * w_inverted[h]
        grad_projections[h, 0] = middle_bar - start_bar
        grad_projections[h, 1] = end_bar - middle_bar
        grad_hidden_bias[h] += middle_bar
    for h in range(len(start)):
        grad_straight[h] += (
            straight_start[h] * start[h] + straight_middle[h] * middle[h] + straight_end[h] * end[h]
        )
    for h in range(len(start)):
        grad_inverted[h] += (
            inverted_start[h] * start[h] + inverted_middle[h] * middle[h] + inverted_end[h] * end[h]
        )


@compiled
def split_scores_backward(
    task,
    parts,
    grad,
    projections,
    hidden_bias,
    weight,
    lengths,
    seed,
    threshold,
    scale,
    splits_at,
    grad_projections,
    grad_hidden_bias,
    grad_weight,
    grad_bias,
):
    """The adjoints of `split_scores`; hidden states and dropout masks are computed again.

    A sentence's splits are divided into parts by their start i. Each part has its own arrays of gradients, which must
    be zero at first. A hidden unit h of a split is mask * max(x, 0) with x = start_i + middle_j + end_k. So the
    adjoints of what is added and of the weights contain the same factor mask * [x > 0]:

        start_bar(i,h) = sum over splits at i and rules R of grad(split,R) * factor(split,h) * weight(R,h)
        weight_bar(R,h) = sum over splits of grad(split,R) * factor(split,h) * (start_i + middle_j + end_k)(h)

    The loop over splits therefore only collects the sums of grad * factor, for each rule, fencepost and unit
    (``straight_start``, ``inverted_start`` and so on). Multiplied by the weights at the end, they are the adjoints of
    the summands; multiplied by the summands and summed over fenceposts, those of the weights.
    """
    b, part = task // parts, task % parts
    length = lengths[b]
    start, middle, end = by_role(projections[b, : length + 1], hidden_bias)
    starts, middles, ends = in_blocks(start), in_blocks(middle), in_blocks(end)
    blocks, fenceposts, _, lanes = starts.shape
    steps = hash_steps(blocks * lanes).reshape(blocks, lanes)
    sums = np.zeros((3, blocks, fenceposts, 2, 2, lanes), start.dtype)
    grads = np.empty((fenceposts * fenceposts // 2, 2, 2, 2), start.dtype)
    keys = np.zeros((len(grads) if threshold > 0 else 1, 2, 2), np.uint32)
    for i in range(2 * part, length - 1, 2 * parts):
        gather_splits(b, i, length, grad, seed, threshold, splits_at, grads, keys, grad_bias[task])
        for block in range(blocks):
            at = 0
            for k in range(i + 2, length + 1, 2):
                if threshold > 0:
                    sum_over_middles_with_dropout(
                        starts,
                        middles,
                        ends,
                        steps,
                        sums[0],
                        sums[1],
                        sums[2],
                        grads,
                        keys,
                        threshold,
                        block,
                        i,
                        k,
                        at,
                    )
                else:
                    sum_over_middles(
                        starts,
                        middles,
                        ends,
                        steps,
                        sums[0],
                        sums[1],
                        sums[2],
                        grads,
                        keys,
                        threshold,
                        block,
                        i,
                        k,
                        at,
                    )
                at += k - i
    straight_start, inverted_start = from_blocks(sums[0], start, scale)
    straight_middle, inverted_middle = from_blocks(sums[1], start, scale)
    straight_end, inverted_end = from_blocks(sums[2], start, scale)
    for fencepost in range(length + 1):
        finish_fencepost(
            (start[fencepost], straight_start[fencepost], inverted_start[fencepost]),
            (middle[fencepost], straight_middle[fencepost], inverted_middle[fencepost]),
            (end[fencepost], straight_end[fencepost], inverted_end[fencepost]),
            weight[0],
            weight[1],
            grad_projections[task, fencepost],
            grad_hidden_bias[task],
            grad_weight[task, 0],
            grad_weight[task, 1],
        )
