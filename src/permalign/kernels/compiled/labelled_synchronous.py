"""Labelled trees that write outputs: the exact sum of reordering and alignment, O(n^3 m^3 K^2 + n^2 m^2 K^3).

Cells (i,k,p,q) hold their labels' values and a scale, as in `permalign.kernels.compiled.labelled`, and only those of
the band that can be part of the whole are made, as in `permalign.kernels.compiled.synchronous`. What a cell is made of
is gathered first: for every split and every number of words that the left child writes, one point.
"""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.labelled import (
    NEGLIGIBLE,
    at_root,
    finish,
    from_scores,
    gather,
    mass_of,
    outer_of_root,
    pair_up,
    part,
    room_for,
    spread,
)
from permalign.kernels.compiled.synchronous import band
from permalign.kernels.numerics import LOG_ZERO


@inlined
def cell_at(spans_at, posts, width, i, p, q):
    """Where the cell (i, i + width, p, q) stands in a chart of spans times output fenceposts."""
    return ((spans_at[width] + i) * posts + p) * posts + q


@compiled
def points_of(own, spans_at, posts, length, words, longest, i, width, p, q, cells, splits, point_split):
    """The points of a cell: children for both rules, the split's scores, and which split it is; returns how many."""
    point = 0
    for inner in range(width - 1):
        left_width, right_width = inner + 1, width - inner - 1
        low, high = band(length, words, longest, left_width)
        right_low, right_high = band(length, words, longest, right_width)
        for size in range(max(low, q - p - right_high), min(high, q - p - right_low) + 1):
            cells[0, 0, point] = cell_at(spans_at, posts, left_width, i, p, p + size)
            cells[0, 1, point] = cell_at(spans_at, posts, right_width, i + left_width, p + size, q)
            cells[1, 0, point] = cell_at(spans_at, posts, left_width, i, q - size, q)
            cells[1, 1, point] = cell_at(spans_at, posts, right_width, i + left_width, p, q - size)
            splits[point, 0] = own[inner, 0]
            splits[point, 1] = own[inner, 1]
            point_split[point] = inner
            point += 1
    return point


@compiled
def inside(
    b,
    rules,
    highest,
    root,
    tokens,
    splits,
    segments,
    lengths,
    target_lengths,
    splits_at,
    spans_at,
    log_sum,
    values,
    scales,
):
    """C(i,k,p,q,a): the weight of all trees of (i,k) with label a that write the words p..q-1."""
    length, words = lengths[b], target_lengths[b]
    posts, longest = segments.shape[2], segments.shape[3] - 1
    if words > length * longest:
        log_sum[b] = LOG_ZERO
        return
    chart, scale = values[b], scales[b]
    most = max(1, (length - 1) * (words + 1))
    cells, weights, left, right, pairs = room_for(most, root.shape[0])
    point_scores, point_split = np.empty((most, 2)), np.empty(most, np.int64)
    low, high = band(length, words, longest, 1)
    for token in range(length):
        for p in range(words + 1 - low):
            for size in range(low, min(high, words - p) + 1):
                at = cell_at(spans_at, posts, 1, token, p, p + size)
                scale[at] = from_scores(tokens[b, token], chart[at]) + segments[b, token, p, size]
    for width in range(2, length + 1):
        low, high = band(length, words, longest, width)
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            own = splits[b, first : first + width - 1]
            for p in range(words + 1 - low):
                for q in range(p + low, min(words, p + high) + 1):
                    points = points_of(
                        own,
                        spans_at,
                        posts,
                        length,
                        words,
                        longest,
                        i,
                        width,
                        p,
                        q,
                        cells,
                        point_scores,
                        point_split,
                    )
                    at = cell_at(spans_at, posts, width, i, p, q)
                    top = gather(cells, point_scores[:points], chart, scale, weights, left, right)
                    pair_up(points, left, right, pairs)
                    scale[at] = top + highest + log(finish(pairs, rules, chart[at]))
    at = cell_at(spans_at, posts, length, 0, 0, words)
    log_sum[b] = at_root(root, chart[at], scale[at])


@compiled
def inside_backward(
    b,
    grad,
    rules,
    highest,
    root,
    splits,
    values,
    scales,
    posts,
    longest,
    lengths,
    target_lengths,
    splits_at,
    spans_at,
    grad_rules,
    grad_root,
    grad_tokens,
    grad_splits,
    grad_segments,
):
    """From wide to narrow, every cell gives its posterior mass to what it was made of."""
    length, words, labels = lengths[b], target_lengths[b], root.shape[0]
    if grad[b] == 0.0 or words > length * longest:
        return
    chart, scale, outer = values[b], scales[b], np.zeros_like(values[b])
    most = max(1, (length - 1) * (words + 1))
    cells, weights, left, right, pairs = room_for(most, labels)
    grad_pairs, flow = np.empty_like(pairs), np.empty((labels, most))
    point_scores, point_split = np.empty((most, 2)), np.empty(most, np.int64)
    grad_points = np.empty((most, 2))
    at = cell_at(spans_at, posts, length, 0, 0, words)
    outer_of_root(grad[b], root, chart[at], outer[at], grad_root[b])
    least = NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        low, high = band(length, words, longest, width)
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            own = splits[b, first : first + width - 1]
            for p in range(words + 1 - low):
                for q in range(p + low, min(words, p + high) + 1):
                    at = cell_at(spans_at, posts, width, i, p, q)
                    if mass_of(chart[at], outer[at]) < least:
                        continue
                    points = points_of(
                        own,
                        spans_at,
                        posts,
                        length,
                        words,
                        longest,
                        i,
                        width,
                        p,
                        q,
                        cells,
                        point_scores,
                        point_split,
                    )
                    top = gather(cells, point_scores[:points], chart, scale, weights, left, right)
                    pair_up(points, left, right, pairs)
                    largest = exp(scale[at] - top - highest)
                    spread(pairs, rules, outer[at], largest, grad_rules[b], grad_pairs)
                    grad_points[:points] = 0.0
                    part(cells, points, grad_pairs, weights, left, right, flow, outer, grad_points)
                    for point in range(points):
                        grad_splits[b, first + point_split[point], 0] += grad_points[point, 0]
                        grad_splits[b, first + point_split[point], 1] += grad_points[point, 1]
    low, high = band(length, words, longest, 1)
    for token in range(length):
        for p in range(words + 1 - low):
            for size in range(low, min(high, words - p) + 1):
                at = cell_at(spans_at, posts, 1, token, p, p + size)
                for a in range(labels):
                    posterior = chart[at, a] * outer[at, a]
                    grad_tokens[b, token, a] += posterior
                    grad_segments[b, token, p, size] += posterior
