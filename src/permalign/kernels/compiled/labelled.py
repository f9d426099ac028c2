"""Labelled trees: inside sums and the best tree, O(n^3 K^2 + n^2 K^3); the tagging likelihood, O(n^4 K^2 + n^3 K^3).

Sums are made in double precision and in probability space. A cell holds the weights of its labels (its values,
``values[b, cell, label]``) divided by a power of two, whose exponent is the cell's scale (``scales[b, cell]``). With
powers of two, no cell takes an exponential or a logarithm. Scores of splits and rules arrive in the same form:
``splits[b, split, orientation]`` is a pair (factor, exponent), and a rule is ``rules[pair, a]`` times 2 to the
``rules_exponent``, with ``pair = (orientation * K + left label) * K + right label``. Backward passes take them and
return their gradients as ``rules[pair // LANES, a, pair % LANES]``. Either way, a cell reads them in the order in which
they lie in memory, which matters where there are too many for the cache.

A cell is computed in three steps, and its adjoints in the reverse order of the same three:

    weigh_points       weight(o,j) = split weight(o,j) * the powers of two of both children
    sum_over_points    pairs(o,b,c) = sum over j of weight(o,j) * value(left child, b) * value(right child, c)
    apply_rules        value(a) = sum over o, b, c of rule(a,o,b,c) * pairs(o,b,c)

The first of these sums is an outer product of two short vectors for every point, with K^2 results that stay in
registers: see `permalign.kernels.compiled.vectors`. So here K is the number of labels padded to a multiple of `LANES`;
labels of the padding have no weight.

The adjoint of a cell is that of its values, scale held fixed: ``adjoint(a) = d log Z / d value(a)``. So
``value(a) * adjoint(a)`` is the derivative of log Z with respect to the log-weight of label a in that cell: the
posterior probability that a tree has this cell with this label. A weight is ``value * 2^scale``, and how it is
divided between the two does not matter; so scales are treated as constants and have no adjoints.
"""

from math import exp, frexp, ldexp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.vectors import (
    LANES,
    add_outer_product,
    added,
    combined_rows,
    load,
    load_tile,
    multiplied,
    scaled,
    store,
    store_tile,
    total,
    transposed,
    zero_tile,
    zeros,
)
from permalign.kernels.numerics import LOG_TWO

NEGLIGIBLE = 1e-30  # cells with less posterior mass than this are left out of gradients
HALVES = 0.5 ** np.arange(1075.0)  # 2^-k, up to the first that is zero


@compiled
def weigh_points(cells, splits, scales, weights):
    """Write the weights of a cell's points, divided by a power of two, whose exponent is returned.

    A point is a split point, or a split point with the outputs of both children. ``cells[orientation, child, point]``
    are the children's indices.
    """
    points, top = splits.shape[0], -np.inf
    for orientation in range(2):
        for j in range(points):
            left, right = cells[orientation, 0, j], cells[orientation, 1, j]
            weights[orientation, j] = splits[j, orientation, 1] + (scales[left] + scales[right])
            top = max(top, weights[orientation, j])
    for orientation in range(2):
        for j in range(points):
            halves = int(min(top - weights[orientation, j], HALVES.shape[0] - 1.0))
            weights[orientation, j] = splits[j, orientation, 0] * HALVES[halves]
    return top


@compiled
def sum_over_points(points, cells, weights, values, pairs):
    """pairs(o,b,c) = sum_j weight(o,j) * value(left(o,j), b) * value(right(o,j), c)."""
    labels = values.shape[1]
    for orientation in range(2):
        for b in range(0, labels, LANES):
            for c in range(0, labels, LANES):
                tile = zero_tile()
                for j in range(points):
                    left, right = cells[orientation, 0, j] * labels + b, cells[orientation, 1, j] * labels + c
                    weighted = scaled(load(values, right), weights[orientation, j])
                    tile = add_outer_product(tile, values, left, 1, weighted)
                store_tile(pairs, (orientation * labels + b) * labels + c, labels, tile)


@inlined
def normalise(value):
    """Divide values by a power of two that makes the largest of them 1/2 to 1; its exponent is returned."""
    largest = 0.0
    for a in range(value.shape[0]):
        largest = max(largest, value[a])
    exponent = frexp(largest)[1]
    factor = ldexp(1.0, -exponent)
    for a in range(value.shape[0]):
        value[a] *= factor
    return exponent


@compiled
def apply_rules(pairs, rules, value):
    """value(a) = sum over pairs of rules(pair, a) * pairs(pair), divided by a power of two; returns its exponent."""
    labels = value.shape[0]
    value[:] = 0.0
    for pair in range(0, pairs.shape[0], LANES):
        for a in range(0, labels, LANES):
            tile = load_tile(rules, pair * labels + a, labels)
            store(value, a, added(load(value, a), combined_rows(tile, pairs, pair)))
    return normalise(value)


@compiled
def apply_rules_backward(pairs, rules, adjoint, exponent, factors, grad_rules, grad_pairs):
    """The adjoint of `apply_rules`, from that of the value: of the pairs, and of the rules' weights.

    pairs_bar(pair) = sum over a of rules(a, pair) * adjoint(a) / 2^exponent
    rules_bar(a, pair) += adjoint(a) / 2^exponent * pairs(pair)

    The last one times the rule's weight is the expected number of its uses. ``factors`` is a buffer.
    """
    factor = ldexp(1.0, -int(exponent))
    for a in range(adjoint.shape[0]):
        factors[a] = adjoint[a] * factor
    for pair in range(0, pairs.shape[0], LANES):
        weight, grad_pair = load(pairs, pair), zeros()
        for a in range(0, adjoint.shape[0], LANES):
            at = pair * adjoint.shape[0] + a * LANES
            grad_pair = added(grad_pair, combined_rows(load_tile(rules, at, LANES), factors, a))
            tile = add_outer_product(load_tile(grad_rules, at, LANES), factors, a, 1, weight)
            store_tile(grad_rules, at, LANES, tile)
        store(grad_pairs, pair, grad_pair)


@compiled
def points_backward(points, cells, weights, values, grad_pairs, adjoint, grad_splits):
    """The adjoints of `sum_over_points` and `weigh_points`: of both children's values and of the splits' scores.

    left_bar(o,j,b)  = weight(o,j) * sum over c of pairs_bar(o,b,c) * right(o,j,c)
    right_bar(o,j,c) = weight(o,j) * sum over b of pairs_bar(o,b,c) * left(o,j,b)
    splits_bar(j,o) += sum over b of left(o,j,b) * left_bar(o,j,b),    the posterior of the split
    """
    labels = values.shape[1]
    for orientation in range(2):
        for b in range(0, labels, LANES):
            for c in range(0, labels, LANES):
                tile = load_tile(grad_pairs, (orientation * labels + b) * labels + c, labels)
                turned = transposed(tile)
                for j in range(points):
                    left, right = cells[orientation, 0, j] * labels + b, cells[orientation, 1, j] * labels + c
                    flow = scaled(combined_rows(turned, values, right), weights[orientation, j])
                    grad_splits[j, orientation] += total(multiplied(flow, load(values, left)))
                    store(adjoint, left, added(load(adjoint, left), flow))
                    flow = scaled(combined_rows(tile, values, left), weights[orientation, j])
                    store(adjoint, right, added(load(adjoint, right), flow))


@inlined
def exponentials(scores, value):
    """Write exp(scores) divided by the largest of them, whose logarithm is returned."""
    scale = scores[0]
    for a in range(scores.shape[0]):
        scale = max(scale, scores[a])
    for a in range(scores.shape[0]):
        value[a] = exp(scores[a] - scale)
    return scale


@inlined
def write_leaf(weights, log_scale, value):
    """Write weights times exp(log_scale) divided by a power of two, whose exponent is returned."""
    exponent = np.floor(log_scale / LOG_TWO)
    # where a score is so large that the difference is rounded, it is not allowed to leave its range
    factor = exp(min(max(log_scale - exponent * LOG_TWO, 0.0), LOG_TWO))
    for a in range(value.shape[0]):
        value[a] = weights[a] * factor
    return exponent


@inlined
def root_log_sum(root, value, scale):
    """log of the sum over a of exp(root(a)) * value(a) * 2^scale."""
    highest = root[0]
    for a in range(root.shape[0]):
        highest = max(highest, root[a])
    weight = 0.0
    for a in range(root.shape[0]):
        weight += exp(root[a] - highest) * value[a]
    return log(weight) + highest + scale * LOG_TWO


@inlined
def root_backward(grad, root, value, adjoint, grad_root):
    """The adjoints of `root_log_sum`: of the root cell's values and of the root's scores."""
    highest = root[0]
    for a in range(root.shape[0]):
        highest = max(highest, root[a])
    weight = 0.0
    for a in range(root.shape[0]):
        weight += exp(root[a] - highest) * value[a]
    for a in range(root.shape[0]):
        adjoint[a] = grad * exp(root[a] - highest) / weight
        grad_root[a] = adjoint[a] * value[a]


@inlined
def posterior_mass(value, adjoint):
    """The posterior probability of a cell, summed over its labels (times the gradient that arrives from outside)."""
    mass = 0.0
    for a in range(value.shape[0]):
        mass += abs(value[a] * adjoint[a])
    return mass


@inlined
def buffers_for(points, labels):
    """Buffers for one cell: the indices of its children, the weights of its points, and its pairs of labels."""
    return np.empty((2, 2, points), np.int64), np.empty((2, points)), np.empty(2 * labels * labels)


# --- Spans, with and without positions in the output ----------------------------------------------------------
# A span has a cell for each position at which its output may begin. Without an output it has a single cell, as if the
# output had one position.


@inlined
def starts_of(positions, width):
    """At how many positions the output of a span may begin."""
    return max(1, positions - width + 1)


@inlined
def row_of(chart_at, positions, width, i):
    """The index of the first cell of the span (i, i + width)."""
    return chart_at[width] + i * starts_of(positions, width)


@inlined
def children_of_cell(chart_at, positions, i, width, p, cells):
    """Write the indices of a cell's children: those of a span whose output starts at p.

    Under a straight node the left child starts at p and the right child follows it; under an inverted node the right
    child starts at p.
    """
    step = min(1, positions - 1)
    for inner in range(width - 1):
        left_width, right_width = inner + 1, width - inner - 1
        left = row_of(chart_at, positions, left_width, i) + p
        right = row_of(chart_at, positions, right_width, i + left_width) + p
        cells[0, 0, inner], cells[0, 1, inner] = left, right + left_width * step
        cells[1, 0, inner], cells[1, 1, inner] = left + right_width * step, right


@compiled
def inside(
    b,
    rules,
    rules_exponent,
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
    """The log of the sum over all labelled trees times their emissions.

    C(i,i+1,p,a) = emission(i,p) * token(i,a)
    C(i,k,p,a) = sum over j, b, c of rule(0,a,b,c) * split(i,j,k,0) * C(i,j,p,b) * C(j,k,p+j-i,c)
                                   + rule(1,a,b,c) * split(i,j,k,1) * C(i,j,p+k-j,b) * C(j,k,p,c)

    If ``emissions`` have a single position, cells do not depend on p, and this is the log-partition:

    beta(i,k,a) = sum over j, o, b, c of rule(o,a,b,c) * split(i,j,k,o) * beta(i,j,b) * beta(j,k,c)
    """
    length, positions = lengths[b], emissions.shape[2]
    within = min(positions, length)
    chart, scale = values[b], scales[b]
    cells, weights, pairs = buffers_for(length, root.shape[0])
    leaf = np.empty(root.shape[0])
    for token in range(length):
        at = row_of(chart_at, positions, 1, token)
        log_scale = exponentials(tokens[b, token], leaf)
        for p in range(within):
            scale[at + p] = write_leaf(leaf, log_scale + emissions[b, token, p], chart[at + p])
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            for p in range(starts_of(within, width)):
                at = row_of(chart_at, positions, width, i) + p
                children_of_cell(chart_at, positions, i, width, p, cells)
                top = weigh_points(cells, span_splits, scale, weights)
                sum_over_points(width - 1, cells, weights, chart, pairs)
                scale[at] = top + rules_exponent + apply_rules(pairs, rules, chart[at])
    at = row_of(chart_at, positions, length, 0)
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
    lengths,
    splits_at,
    chart_at,
    grad_rules,
    grad_root,
    grad_tokens,
    grad_splits,
    grad_emissions,
):
    """The adjoints of `inside`: posterior expectations times the incoming gradient; of rules, without their weights.

    Wide cells come first: the adjoint of a cell is complete when every wider cell that has it as a child is done. What
    the forward pass computed from a cell's children is computed again, which is cheaper than storing it. With
    positions, most of the cells have hardly any posterior mass; these are skipped.
    """
    if grad[b] == 0.0:
        return
    length, positions = lengths[b], grad_emissions.shape[2]
    within, labels = min(positions, length), root.shape[0]
    chart, scale, adjoint = values[b], scales[b], np.zeros_like(values[b])
    cells, weights, pairs = buffers_for(length, labels)
    grad_pairs, factors = np.empty_like(pairs), np.empty(labels)
    at = row_of(chart_at, positions, length, 0)
    root_backward(grad[b], root, chart[at], adjoint[at], grad_root[b])
    least = NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            grad_span_splits = grad_splits[b, first : first + width - 1]
            for p in range(starts_of(within, width)):
                at = row_of(chart_at, positions, width, i) + p
                if posterior_mass(chart[at], adjoint[at]) < least:
                    continue
                # the forward pass of this cell again, then its three steps backwards
                children_of_cell(chart_at, positions, i, width, p, cells)
                top = weigh_points(cells, span_splits, scale, weights)
                sum_over_points(width - 1, cells, weights, chart, pairs)
                exponent = scale[at] - top - rules_exponent  # what `apply_rules` divided the values by
                apply_rules_backward(pairs, rules, adjoint[at], exponent, factors, grad_rules[b], grad_pairs)
                points_backward(width - 1, cells, weights, chart, grad_pairs, adjoint, grad_span_splits)
    # value * adjoint is the posterior of a label, which is the adjoint of its score
    for token in range(length):
        for p in range(within):
            at = row_of(chart_at, positions, 1, token) + p
            for a in range(labels):
                posterior = chart[at, a] * adjoint[at, a]
                grad_tokens[b, token, a] += posterior
                grad_emissions[b, token, p] += posterior


@compiled
def best_inside(b, rules, tokens, splits, lengths, splits_at, chart_at, chart):
    """The log-weight of the best tree over every span by label; here ``rules[a, pair]`` are log-weights.

    best(i,k,a) = max over j, o, b, c of rule(o,a,b,c) + split(i,j,k,o) + best(i,j,b) + best(j,k,c)
    """
    length, labels = lengths[b], tokens.shape[2]
    best, half = chart[b], labels * labels
    pairs = np.empty(2 * half, chart.dtype)
    for token in range(length):
        best[token] = tokens[b, token]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first, at = splits_at[width] + i * (width - 1), row_of(chart_at, 1, width, i)
            # pairs[o, b, c]: the best pair of children with these labels, over all split points
            pairs[:] = -np.inf
            for inner in range(width - 1):
                left = best[row_of(chart_at, 1, inner + 1, i)]
                right = best[row_of(chart_at, 1, width - inner - 1, i + inner + 1)]
                for orientation in range(2):
                    for left_label in range(labels):
                        weight = splits[b, first + inner, orientation] + left[left_label]
                        begin = orientation * half + left_label * labels
                        row = pairs[begin : begin + labels]
                        for c in range(labels):
                            row[c] = max(row[c], weight + right[c])
            for a in range(labels):
                highest = pairs[0] + rules[a, 0]
                for pair in range(2 * half):
                    highest = max(highest, pairs[pair] + rules[a, pair])
                best[at, a] = highest
