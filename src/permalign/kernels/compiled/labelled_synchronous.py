"""Labelled trees that write outputs: the exact sum over reorderings and alignments, O(n^3 m^3 K^2 + n^2 m^2 K^3).

A cell (i,k,p,q) stands for trees over the source span (i,k) that write the output tokens p..q-1. Cells hold their
labels' values and a scale and are computed in the three steps of `permalign.kernels.compiled.labelled`; only cells in
the band that can be part of a whole derivation are computed, as in `permalign.kernels.compiled.synchronous`, which also
explains ``spans_at`` and ``extent``. A cell has a *point* for every split and every number of output tokens that the
left child writes.
"""

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.labelled import (
    NEGLIGIBLE,
    apply_rules,
    apply_rules_backward,
    buffers_for,
    exponentials,
    points_backward,
    posterior_mass,
    root_backward,
    root_log_sum,
    sum_over_points,
    weigh_points,
    write_leaf,
)
from permalign.kernels.compiled.synchronous import band
from permalign.kernels.numerics import LOG_ZERO


@inlined
def cell_at(spans_at, fenceposts, width, i, p, q):
    """The index of the cell (i, i + width, p, q) in a chart of spans times output fenceposts."""
    return ((spans_at[width] + i) * fenceposts + p) * fenceposts + q


@compiled
def points_of(span_splits, spans_at, fenceposts, extent, i, width, p, q, cells, point_scores, point_split):
    """Write the points of a cell, and return their number.

    Of each point: the indices of its children (``cells``, for both orientations), the scores of its split
    (``point_scores``), and the number of that split within the span (``point_split``).
    """
    point = 0
    for inner in range(width - 1):
        left_width, right_width = inner + 1, width - inner - 1
        low, high = band(extent, left_width)
        right_low, right_high = band(extent, right_width)
        # the left child writes ``size`` tokens: the first ones of p..q under a straight node, the last ones otherwise
        for size in range(max(low, q - p - right_high), min(high, q - p - right_low) + 1):
            cells[0, 0, point] = cell_at(spans_at, fenceposts, left_width, i, p, p + size)
            cells[0, 1, point] = cell_at(spans_at, fenceposts, right_width, i + left_width, p + size, q)
            cells[1, 0, point] = cell_at(spans_at, fenceposts, left_width, i, q - size, q)
            cells[1, 1, point] = cell_at(spans_at, fenceposts, right_width, i + left_width, p, q - size)
            for orientation in range(2):
                point_scores[point, orientation] = span_splits[inner, orientation]
            point_split[point] = inner
            point += 1
    return point


@compiled
def inside(
    b,
    rules,
    rules_exponent,
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
    """The log of the sum over all labelled trees that write the output.

    C(i,i+1,p,q,a) = token(i,a) * segment(i, p, q - p)
    C(i,k,p,q,a) = sum over j, r, b, c of rule(0,a,b,c) * split(i,j,k,0) * C(i,j,p,r,b) * C(j,k,r,q,c)
                                        + rule(1,a,b,c) * split(i,j,k,1) * C(i,j,r,q,b) * C(j,k,p,r,c)
    """
    length, target_length = lengths[b], target_lengths[b]
    fenceposts, max_segment_length = segments.shape[2], segments.shape[3] - 1
    extent = (length, target_length, max_segment_length)
    if target_length > length * max_segment_length:
        log_sum[b] = LOG_ZERO
        return
    chart, scale = values[b], scales[b]
    max_points = max(1, (length - 1) * (target_length + 1))
    cells, weights, pairs = buffers_for(max_points, root.shape[0])
    point_scores, point_split = np.empty((max_points, 2, 2)), np.empty(max_points, np.int64)
    leaf = np.empty(root.shape[0])
    low, high = band(extent, 1)
    for token in range(length):
        log_scale = exponentials(tokens[b, token], leaf)
        for p in range(target_length + 1 - low):
            for size in range(low, min(high, target_length - p) + 1):
                at = cell_at(spans_at, fenceposts, 1, token, p, p + size)
                scale[at] = write_leaf(leaf, log_scale + segments[b, token, p, size], chart[at])
    for width in range(2, length + 1):
        low, high = band(extent, width)
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            for p in range(target_length + 1 - low):
                for q in range(p + low, min(target_length, p + high) + 1):
                    points = points_of(
                        span_splits,
                        spans_at,
                        fenceposts,
                        extent,
                        i,
                        width,
                        p,
                        q,
                        cells,
                        point_scores,
                        point_split,
                    )
                    at = cell_at(spans_at, fenceposts, width, i, p, q)
                    top = weigh_points(cells, point_scores[:points], scale, weights)
                    sum_over_points(points, cells, weights, chart, pairs)
                    scale[at] = top + rules_exponent + apply_rules(pairs, rules, chart[at])
    at = cell_at(spans_at, fenceposts, length, 0, 0, target_length)
    log_sum[b] = root_log_sum(root, chart[at], scale[at])


@compiled
def inside_backward(
    b,
    grad,
    rules,
    rules_exponent,
    root,
    splits,
    values,
    scales,
    fenceposts,
    max_segment_length,
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
    """The adjoints of rules, root, tokens, splits and segments: their posterior expectations, times the gradient.

    Wide cells come first, as in `permalign.kernels.compiled.labelled.inside_backward`. Several points share one split,
    whose adjoint is the sum of theirs.
    """
    length, target_length, labels = lengths[b], target_lengths[b], root.shape[0]
    extent = (length, target_length, max_segment_length)
    if grad[b] == 0.0 or target_length > length * max_segment_length:
        return
    chart, scale, adjoint = values[b], scales[b], np.zeros_like(values[b])
    max_points = max(1, (length - 1) * (target_length + 1))
    cells, weights, pairs = buffers_for(max_points, labels)
    grad_pairs, factors = np.empty_like(pairs), np.empty(labels)
    point_scores, point_split = np.empty((max_points, 2, 2)), np.empty(max_points, np.int64)
    grad_points = np.empty((max_points, 2))
    at = cell_at(spans_at, fenceposts, length, 0, 0, target_length)
    root_backward(grad[b], root, chart[at], adjoint[at], grad_root[b])
    least = NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        low, high = band(extent, width)
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            for p in range(target_length + 1 - low):
                for q in range(p + low, min(target_length, p + high) + 1):
                    at = cell_at(spans_at, fenceposts, width, i, p, q)
                    if posterior_mass(chart[at], adjoint[at]) < least:
                        continue
                    points = points_of(
                        span_splits,
                        spans_at,
                        fenceposts,
                        extent,
                        i,
                        width,
                        p,
                        q,
                        cells,
                        point_scores,
                        point_split,
                    )
                    top = weigh_points(cells, point_scores[:points], scale, weights)
                    sum_over_points(points, cells, weights, chart, pairs)
                    exponent = scale[at] - top - rules_exponent  # what `apply_rules` divided the values by
                    apply_rules_backward(
                        pairs, rules, adjoint[at], exponent, factors, grad_rules[b], grad_pairs
                    )
                    grad_points[:points] = 0.0
                    points_backward(points, cells, weights, chart, grad_pairs, adjoint, grad_points)
                    for point in range(points):
                        grad_splits[b, first + point_split[point], 0] += grad_points[point, 0]
                        grad_splits[b, first + point_split[point], 1] += grad_points[point, 1]
    low, high = band(extent, 1)
    for token in range(length):
        for p in range(target_length + 1 - low):
            for size in range(low, min(high, target_length - p) + 1):
                at = cell_at(spans_at, fenceposts, 1, token, p, p + size)
                for a in range(labels):
                    posterior = chart[at, a] * adjoint[at, a]
                    grad_tokens[b, token, a] += posterior
                    grad_segments[b, token, p, size] += posterior


@compiled
def best_inside(b, rules, tokens, splits, segments, lengths, target_lengths, splits_at, spans_at, chart):
    """The log-weight of the best labelled tree of every cell; here ``rules[a, pair]`` are log-weights.

    best(i,i+1,p,q,a) = token(i,a) + segment(i, p, q - p)
    best(i,k,p,q,a) = max over j, r, b, c of { rule(0,a,b,c) + split(i,j,k,0) + best(i,j,p,r,b) + best(j,k,r,q,c),
                                               rule(1,a,b,c) + split(i,j,k,1) + best(i,j,r,q,b) + best(j,k,p,r,c) }

    Cells that cannot be part of a whole derivation keep the value they have.
    """
    length, target_length, labels = lengths[b], target_lengths[b], tokens.shape[2]
    fenceposts, max_segment_length = segments.shape[2], segments.shape[3] - 1
    extent = (length, target_length, max_segment_length)
    if target_length > length * max_segment_length:
        return
    best, half = chart[b], labels * labels
    max_points = max(1, (length - 1) * (target_length + 1))
    cells, pairs = np.empty((2, 2, max_points), np.int64), np.empty(2 * half)
    point_scores, point_split = np.empty((max_points, 2)), np.empty(max_points, np.int64)
    low, high = band(extent, 1)
    for token in range(length):
        for p in range(target_length + 1 - low):
            for size in range(low, min(high, target_length - p) + 1):
                at = cell_at(spans_at, fenceposts, 1, token, p, p + size)
                for a in range(labels):
                    best[at, a] = tokens[b, token, a] + segments[b, token, p, size]
    for width in range(2, length + 1):
        low, high = band(extent, width)
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            own = splits[b, first : first + width - 1]
            for p in range(target_length + 1 - low):
                for q in range(p + low, min(target_length, p + high) + 1):
                    points = points_of(
                        own, spans_at, fenceposts, extent, i, width, p, q, cells, point_scores, point_split
                    )
                    pairs[:] = -np.inf
                    for orientation in range(2):
                        for point in range(points):
                            left, right = (
                                best[cells[orientation, 0, point]],
                                best[cells[orientation, 1, point]],
                            )
                            for left_label in range(labels):
                                weight = point_scores[point, orientation] + left[left_label]
                                begin = orientation * half + left_label * labels
                                row = pairs[begin : begin + labels]
                                for c in range(labels):
                                    row[c] = max(row[c], weight + right[c])
                    at = cell_at(spans_at, fenceposts, width, i, p, q)
                    for a in range(labels):
                        highest = pairs[0] + rules[a, 0]
                        for pair in range(2 * half):
                            highest = max(highest, pairs[pair] + rules[a, pair])
                        best[at, a] = highest
