"""Labelled trees whose rules are products: inside sums and the best tree, O(n^3 K + n^2 K^2); taggings, n times that.

The weight of a rule is ``left(o,a,b) * right(o,a,c)``: given a node's label and orientation, the labels of its children
do not depend on each other. So what a cell contributes to its parents does not depend on its sibling, and is computed
once, when the cell is complete:

    projected(cell, o, side, a) = sum over b of factor(o, side, a, b) * value(cell, b)

with side 0 for a left child and 1 for a right one. A parent multiplies these, label by label:

    value(a) = sum over o, j of weight(o,j) * projected(left child, o, 0, a) * projected(right child, o, 1, a)

Cells are those of `permalign.kernels.compiled.labelled`, with values divided by powers of two. All cells of one width
are projected together, `LANES` at a time, which is a matrix product. The chart of a sentence is laid out by its own
length, so that the cells of a width lie behind one another. After the last one there is room for `LANES` more, which
are computed with the last ones and mean nothing. Projections are four times as large as values, and are not kept for
the backward pass, which computes them again.

Factors arrive as ``factors[s // LANES, b, s % LANES]`` with ``s = (orientation * 2 + side) * K + a``, and for products
with the transposed matrix as ``transposed[b // LANES, s, b % LANES]``, so that they are read from beginning to end.
"""

from math import ldexp

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.labelled import (
    NEGLIGIBLE,
    children_of_cell,
    exponentials,
    normalise,
    posterior_mass,
    root_backward,
    root_log_sum,
    row_of,
    starts_of,
    weigh_points,
    write_leaf,
)
from permalign.kernels.compiled.vectors import (
    LANES,
    add_outer_product,
    added,
    load,
    load_tile,
    multiplied,
    scaled,
    store,
    store_tile,
    total,
    zero_tile,
    zeros,
)


@inlined
def chart_layout(length, positions):
    """Where the cells of each width 1..n begin in a chart, and where those of width n end."""
    chart_at = np.zeros(length + 2, np.int64)
    for width in range(1, length + 1):
        chart_at[width + 1] = chart_at[width] + (length - width + 1) * starts_of(positions, width)
    return chart_at


@compiled
def multiply(first, last, rows, panels, products):
    """products(cell, s) = sum over b of rows(cell, b) * panels(s // LANES, b, s % LANES) for the cells first..last."""
    columns, size = rows.shape[1], products.shape[1]
    for s in range(0, size, LANES):
        for cell in range(first, last, LANES):
            tile = zero_tile()
            for b in range(columns):
                panel = load(panels, s * columns + b * LANES)
                tile = add_outer_product(tile, rows, cell * columns + b, columns, panel)
            store_tile(products, cell * size + s, size, tile)


@compiled
def factors_backward(first, last, values, grad_projected, grad_factors):
    """The adjoint of `multiply` for the factors: the sum over cells of value(cell, b) * projected_bar(cell, s)."""
    labels, size = values.shape[1], grad_projected.shape[1]
    for group in range(first, last, LANES):
        for s in range(0, size, LANES):
            for b in range(0, labels, LANES):
                tile = load_tile(grad_factors, s * labels + b * LANES, LANES)
                for cell in range(group, min(group + LANES, last)):
                    flow = load(grad_projected, cell * size + s)
                    tile = add_outer_product(tile, values, cell * labels + b, 1, flow)
                store_tile(grad_factors, s * labels + b * LANES, LANES, tile)


@compiled
def sum_over_points(points, cells, weights, projected, value):
    """value(a) = sum_{o,j} weight(o,j) * projected(left(o,j), o, 0, a) * projected(right(o,j), o, 1, a)."""
    labels, size = value.shape[0], projected.shape[1]
    value[:] = 0.0
    for orientation in range(2):
        for j in range(points):
            left = cells[orientation, 0, j] * size + 2 * orientation * labels
            right = cells[orientation, 1, j] * size + (2 * orientation + 1) * labels
            for a in range(0, labels, LANES):
                of_left = scaled(load(projected, left + a), weights[orientation, j])
                both = multiplied(of_left, load(projected, right + a))
                store(value, a, added(load(value, a), both))


@compiled
def points_backward(points, cells, weights, projected, adjoint, grad_projected, grad_splits):
    """The adjoints of `sum_over_points` and `weigh_points`: of the children's projections and of the splits' scores."""
    labels, size = adjoint.shape[0], projected.shape[1]
    for orientation in range(2):
        for j in range(points):
            left = cells[orientation, 0, j] * size + 2 * orientation * labels
            right = cells[orientation, 1, j] * size + (2 * orientation + 1) * labels
            posterior = zeros()
            for a in range(0, labels, LANES):
                flow = scaled(load(adjoint, a), weights[orientation, j])
                of_left, of_right = load(projected, left + a), load(projected, right + a)
                to_left = multiplied(flow, of_right)
                posterior = added(posterior, multiplied(to_left, of_left))
                store(grad_projected, left + a, added(load(grad_projected, left + a), to_left))
                to_right = multiplied(flow, of_left)
                store(grad_projected, right + a, added(load(grad_projected, right + a), to_right))
            grad_splits[j, orientation] += total(posterior)


@compiled
def inside(
    b,
    factors,
    factors_exponent,
    root,
    tokens,
    splits,
    emissions,
    lengths,
    splits_at,
    log_sum,
    values,
    scales,
):
    """The log of the sum over all labelled trees times their emissions: `labelled.inside`, for rules that are products.

    C(i,i+1,p,a) = emission(i,p) * token(i,a)
    C(i,k,p,a) = sum over j of left(0,a) . C(i,j,p) * right(0,a) . C(j,k,p+j-i) * split(i,j,k,0)
                             + left(1,a) . C(i,j,p+k-j) * right(1,a) . C(j,k,p) * split(i,j,k,1)

    where ``left(o,a) . C`` is the sum over b of left(o,a,b) * C(b).
    """
    length, labels = lengths[b], root.shape[0]
    positions = min(emissions.shape[2], length)
    chart, scale, chart_at = values[b], scales[b], chart_layout(length, positions)
    projected = np.empty((chart_at[length + 1] + LANES, 4 * labels))
    cells, weights = np.empty((2, 2, length), np.int64), np.empty((2, length))
    leaf = np.empty(labels)
    for token in range(length):
        at = row_of(chart_at, positions, 1, token)
        log_scale = exponentials(tokens[b, token], leaf)
        for p in range(positions):
            scale[at + p] = write_leaf(leaf, log_scale + emissions[b, token, p], chart[at + p])
    for width in range(2, length + 1):
        multiply(chart_at[width - 1], chart_at[width], chart, factors, projected)
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            for p in range(starts_of(positions, width)):
                at = row_of(chart_at, positions, width, i) + p
                children_of_cell(chart_at, positions, i, width, p, cells)
                top = weigh_points(cells, span_splits, scale, weights)
                sum_over_points(width - 1, cells, weights, projected, chart[at])
                scale[at] = top + factors_exponent + normalise(chart[at])
    at = row_of(chart_at, positions, length, 0)
    log_sum[b] = root_log_sum(root, chart[at], scale[at])


@compiled
def inside_backward(
    b,
    grad,
    factors,
    transposed,
    factors_exponent,
    root,
    splits,
    values,
    scales,
    lengths,
    splits_at,
    grad_factors,
    grad_root,
    grad_tokens,
    grad_splits,
    grad_emissions,
):
    """The adjoints of `inside`: posterior expectations times the incoming gradient; of factors, without their weights.

    Wide cells come first, as in `labelled.inside_backward`. The adjoint of a width's projections is complete when every
    wider cell is done; that of its values is then a matrix product.
    """
    if grad[b] == 0.0:
        return
    length, labels = lengths[b], root.shape[0]
    positions = min(grad_emissions.shape[2], length)
    chart, scale, chart_at = values[b], scales[b], chart_layout(length, positions)
    last = chart_at[length + 1]
    projected = np.empty((last + LANES, 4 * labels))
    adjoint, grad_projected = np.zeros((last + LANES, labels)), np.zeros((last + LANES, 4 * labels))
    cells, weights = np.empty((2, 2, length), np.int64), np.empty((2, length))
    multiply(0, last, chart, factors, projected)
    at = row_of(chart_at, positions, length, 0)
    root_backward(grad[b], root, chart[at], adjoint[at], grad_root[b])
    least = NEGLIGIBLE * abs(grad[b])
    for width in range(length, 0, -1):
        if width < length:
            multiply(chart_at[width], chart_at[width + 1], grad_projected, transposed, adjoint)
            factors_backward(chart_at[width], chart_at[width + 1], chart, grad_projected, grad_factors[b])
        for i in range(length - width + 1 if width > 1 else 0):
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            grad_span_splits = grad_splits[b, first : first + width - 1]
            for p in range(starts_of(positions, width)):
                at = row_of(chart_at, positions, width, i) + p
                if posterior_mass(chart[at], adjoint[at]) < least:
                    continue
                children_of_cell(chart_at, positions, i, width, p, cells)
                top = weigh_points(cells, span_splits, scale, weights)
                # what `normalise` divided the values by
                divisor = ldexp(1.0, -int(scale[at] - top - factors_exponent))
                for a in range(labels):
                    adjoint[at, a] *= divisor
                points_backward(
                    width - 1, cells, weights, projected, adjoint[at], grad_projected, grad_span_splits
                )
    for token in range(length):
        for p in range(positions):
            at = row_of(chart_at, positions, 1, token) + p
            for a in range(labels):
                posterior = chart[at, a] * adjoint[at, a]
                grad_tokens[b, token, a] += posterior
                grad_emissions[b, token, p] += posterior


@inlined
def best_child(scores, child, projected):
    """projected(s) = max over b of scores(s, b) + child(b), for every orientation, side and label s."""
    for s in range(scores.shape[0]):
        row, highest = scores[s], -np.inf
        for b in range(child.shape[0]):
            highest = max(highest, row[b] + child[b])
        projected[s] = highest


@compiled
def best_inside(b, scores, tokens, splits, lengths, splits_at, chart_at, chart):
    """The log-weight of the best tree over every span by label; here ``scores[s, b]`` are log-weights.

    best(i,k,a) = max over j, o of split(i,j,k,o) + projected(i,j,o,0,a) + projected(j,k,o,1,a)
    projected(i,k,o,side,a) = max over b of factor(o,side,a,b) + best(i,k,b)
    """
    length, labels = lengths[b], tokens.shape[2]
    best = chart[b]
    projected = np.empty((best.shape[0], 4 * labels), chart.dtype)
    for token in range(length):
        best[token] = tokens[b, token]
        best_child(scores, best[token], projected[token])
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first, at = splits_at[width] + i * (width - 1), row_of(chart_at, 1, width, i)
            best[at] = -np.inf
            for inner in range(width - 1):
                left = projected[row_of(chart_at, 1, inner + 1, i)]
                right = projected[row_of(chart_at, 1, width - inner - 1, i + inner + 1)]
                for orientation in range(2):
                    split, begin = splits[b, first + inner, orientation], 2 * orientation * labels
                    for a in range(labels):
                        weight = split + left[begin + a] + right[begin + labels + a]
                        best[at, a] = max(best[at, a], weight)
            best_child(scores, best[at], projected[at])
