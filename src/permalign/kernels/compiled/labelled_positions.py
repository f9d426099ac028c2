"""Labelled trees that know output positions: the exact tagging likelihood, O(n^4 K^2 + n^3 K^3)."""

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
from permalign.kernels.compiled.positions import row_at


@inlined
def children_of_cell(chart_at, words, i, width, p, cells):
    """Where the children of a span stand whose output starts at p: in a straight node the left one starts there."""
    for inner in range(width - 1):
        left_width, right_width = inner + 1, width - inner - 1
        left = row_at(chart_at, words, left_width, i) + p
        right = row_at(chart_at, words, right_width, i + left_width) + p
        cells[0, 0, inner], cells[0, 1, inner] = left, right + left_width
        cells[1, 0, inner], cells[1, 1, inner] = left + right_width, right


@compiled
def tagging_inside(
    b,
    rules,
    highest,
    root,
    tokens,
    splits,
    emissions,
    lengths,
    splits_at,
    chart_at,
    log_sum,
    values,
    scales,
):
    """C(i,k,p,a): the weight of all trees of (i,k) with label a that put its words at p, p+1, ... times emissions."""
    length, words = lengths[b], tokens.shape[1]
    chart, scale = values[b], scales[b]
    cells, weights, left, right, pairs = room_for(length, root.shape[0])
    for token in range(length):
        at = row_at(chart_at, words, 1, token)
        own_scale = from_scores(tokens[b, token], chart[at])
        for p in range(length):
            chart[at + p] = chart[at]
            scale[at + p] = own_scale + emissions[b, token, p]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            own = splits[b, first : first + width - 1]
            for p in range(length - width + 1):
                at = row_at(chart_at, words, width, i) + p
                children_of_cell(chart_at, words, i, width, p, cells)
                top = gather(cells, own, chart, scale, weights, left, right)
                pair_up(width - 1, left, right, pairs)
                scale[at] = top + highest + log(finish(pairs, rules, chart[at]))
    at = row_at(chart_at, words, length, 0)
    log_sum[b] = at_root(root, chart[at], scale[at])


@compiled
def tagging_inside_backward(
    b,
    grad,
    rules,
    highest,
    root,
    splits,
    values,
    scales,
    lengths,
    splits_at,
    chart_at,
    grad_rules,
    grad_root,
    grad_tokens,
    grad_splits,
    grad_emissions,
):
    """`inside_backward` with positions; cells that no likely tree has cost nothing."""
    if grad[b] == 0.0:
        return
    length, words, labels = lengths[b], grad_tokens.shape[1], root.shape[0]
    chart, scale, outer = values[b], scales[b], np.zeros_like(values[b])
    cells, weights, left, right, pairs = room_for(length, labels)
    grad_pairs, flow = np.empty_like(pairs), np.empty((labels, length))
    at = row_at(chart_at, words, length, 0)
    outer_of_root(grad[b], root, chart[at], outer[at], grad_root[b])
    least = NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            own, grad_own = splits[b, first : first + width - 1], grad_splits[b, first : first + width - 1]
            for p in range(length - width + 1):
                at = row_at(chart_at, words, width, i) + p
                if mass_of(chart[at], outer[at]) < least:
                    continue
                children_of_cell(chart_at, words, i, width, p, cells)
                top = gather(cells, own, chart, scale, weights, left, right)
                pair_up(width - 1, left, right, pairs)
                spread(pairs, rules, outer[at], exp(scale[at] - top - highest), grad_rules[b], grad_pairs)
                part(cells, width - 1, grad_pairs, weights, left, right, flow, outer, grad_own)
    for token in range(length):
        for p in range(length):
            at = row_at(chart_at, words, 1, token) + p
            for a in range(labels):
                posterior = chart[at, a] * outer[at, a]
                grad_tokens[b, token, a] += posterior
                grad_emissions[b, token, p] += posterior
