"""Labelled trees: inside sums and the best tree, O(n^3 K^2 + n^2 K^3); the tagging likelihood, O(n^4 K^2 + n^3 K^3).

Sums are made in double precision and in probability space. A cell holds the weights of its labels divided by the
largest of them (its values, ``values[b, cell, label]``) and the logarithm of that largest weight (its scale,
``scales[b, cell]``). Rules arrive as ``rules[a, pair] = exp(score - highest)`` with ``pair = (orientation * K + left
label) * K + right label``; ``highest``, the highest score, is added to the scales.

A cell is computed in three steps, and its adjoints in the reverse order of the same three:

    gather_children    left(o,b,j) = split weight(o,j) * value(left child, b),    right(o,c,j) = value(right child, c)
    sum_over_splits    pairs(o,b,c) = sum over j of left(o,b,j) * right(o,c,j)
    apply_rules        value(a) = sum over o, b, c of rule(a,o,b,c) * pairs(o,b,c)

Children are gathered as ``[orientation, label, split point]``, so that the innermost loops run along split points or
pairs of labels, which are many, and not along labels, which are few.

The adjoint of a cell is that of its values, scale held fixed: ``adjoint(a) = d log Z / d value(a)``. So
``value(a) * adjoint(a)`` is the derivative of log Z with respect to the log-weight of label a in that cell: the
posterior probability that a tree has this cell with this label. A weight is ``value * exp(scale)``, and how it is
divided between the two does not matter; so scales are treated as constants and have no adjoints.
"""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.separable import row_at

NEGLIGIBLE = 1e-30  # cells with less posterior mass than this are left out of gradients


@inlined
def span_at(max_length, width, i):
    """The index of the span (i, i + width) in a packed chart."""
    return (width - 1) * (max_length + 1) - width * (width - 1) // 2 + i


@compiled
def gather_children(cells, splits, values, scales, weights, left, right):
    """Write ``left`` and ``right``, the values of a cell's children; ``left`` is multiplied by the split's weight.

    ``cells`` are the children's indices, [orientation, child, split point]. The weight of a split point is that of the
    split and of both children's scales, divided by the largest such weight, whose logarithm is returned.
    """
    points, labels = splits.shape[0], values.shape[1]
    top = -np.inf
    for orientation in range(2):
        for j in range(points):
            weights[orientation, j] = (
                splits[j, orientation] + scales[cells[orientation, 0, j]] + scales[cells[orientation, 1, j]]
            )
            top = max(top, weights[orientation, j])
    for orientation in range(2):
        for j in range(points):
            weight = exp(weights[orientation, j] - top)
            weights[orientation, j] = weight
            left_value, right_value = values[cells[orientation, 0, j]], values[cells[orientation, 1, j]]
            for a in range(labels):
                left[orientation, a, j] = weight * left_value[a]
                right[orientation, a, j] = right_value[a]
    return top


@compiled
def sum_over_splits(points, left, right, pairs):
    """pairs(o,b,c) = sum_j left(o,b,j) * right(o,c,j)."""
    labels = left.shape[1]
    for orientation in range(2):
        for b in range(labels):
            for c in range(labels):
                left_row, right_row = left[orientation, b], right[orientation, c]
                total = 0.0
                for j in range(points):
                    total += left_row[j] * right_row[j]
                pairs[(orientation * labels + b) * labels + c] = total


@compiled
def apply_rules(pairs, rules, value):
    """value(a) = sum over pairs of rules(a, pair) * pairs(pair), divided by the largest value, which is returned."""
    labels, largest = value.shape[0], 0.0
    for a in range(labels):
        row, total = rules[a], 0.0
        for pair in range(pairs.shape[0]):
            total += row[pair] * pairs[pair]
        value[a] = total
        largest = max(largest, total)
    for a in range(labels):
        value[a] /= largest
    return largest


@compiled
def apply_rules_backward(pairs, rules, adjoint, largest, grad_rules, grad_pairs):
    """The adjoint of `apply_rules`, from that of the value: of the pairs, and of the rules' log-weights.

    pairs_bar(pair) = sum over a of rules(a, pair) * adjoint(a) / largest
    rules_bar(a, pair) += rules(a, pair) * adjoint(a) / largest * pairs(pair),   the expected number of uses
    """
    grad_pairs[:] = 0.0
    for a in range(adjoint.shape[0]):
        row, grad_row, factor = rules[a], grad_rules[a], adjoint[a] / largest
        if factor != 0.0:
            for pair in range(pairs.shape[0]):
                flow = row[pair] * factor
                grad_pairs[pair] += flow
                grad_row[pair] += flow * pairs[pair]


@inlined
def combine_rows(points, factors, at, step, rows, total):
    """total(j) = sum over r of factors(at + r * step) * rows(r, j).

    Four rows are added at a time, so that ``total`` is read and written a quarter as often.
    """
    count = rows.shape[0]
    for j in range(points):
        total[j] = 0.0
    for r in range(0, count - 3, 4):
        f0, f1 = factors[at + r * step], factors[at + (r + 1) * step]
        f2, f3 = factors[at + (r + 2) * step], factors[at + (r + 3) * step]
        row0, row1, row2, row3 = rows[r], rows[r + 1], rows[r + 2], rows[r + 3]
        for j in range(points):
            total[j] += f0 * row0[j] + f1 * row1[j] + f2 * row2[j] + f3 * row3[j]
    for r in range(count - count % 4, count):
        factor, row = factors[at + r * step], rows[r]
        for j in range(points):
            total[j] += factor * row[j]


@compiled
def gather_children_backward(cells, points, grad_pairs, weights, left, right, flow, adjoint, grad_splits):
    """The adjoints of `sum_over_splits` and `gather_children`: of both children's values and of the splits' scores.

    left_bar(o,b,j)  = sum over c of pairs_bar(o,b,c) * right(o,c,j)
    right_bar(o,c,j) = sum over b of pairs_bar(o,b,c) * left(o,b,j)

    ``right`` is the right child's value, so right_bar is that value's adjoint; ``left`` is the left child's value times
    the weight of the split, so left_bar times that weight is. The adjoint of a split's score is its posterior:

    splits_bar(j,o) += sum over b of left(o,b,j) * left_bar(o,b,j)

    ``flow`` is a buffer for left_bar and then for right_bar, [label, split point].
    """
    labels = left.shape[1]
    for orientation in range(2):
        at = orientation * labels * labels
        for b in range(labels):
            combine_rows(points, grad_pairs, at + b * labels, 1, right[orientation], flow[b])
        for j in range(points):
            to_left, weight, posterior = adjoint[cells[orientation, 0, j]], weights[orientation, j], 0.0
            for b in range(labels):
                to_left[b] += weight * flow[b, j]
                posterior += left[orientation, b, j] * flow[b, j]
            grad_splits[j, orientation] += posterior
        for c in range(labels):
            combine_rows(points, grad_pairs, at + c, labels, left[orientation], flow[c])
        for j in range(points):
            to_right = adjoint[cells[orientation, 1, j]]
            for c in range(labels):
                to_right[c] += flow[c, j]


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
def root_log_sum(root, value, scale):
    """log of the sum over a of exp(root(a)) * value(a) * exp(scale)."""
    highest = root[0]
    for a in range(root.shape[0]):
        highest = max(highest, root[a])
    total = 0.0
    for a in range(root.shape[0]):
        total += exp(root[a] - highest) * value[a]
    return log(total) + highest + scale


@inlined
def root_backward(grad, root, value, adjoint, grad_root):
    """The adjoints of `root_log_sum`: of the root cell's values and of the root's scores."""
    highest = root[0]
    for a in range(root.shape[0]):
        highest = max(highest, root[a])
    total = 0.0
    for a in range(root.shape[0]):
        total += exp(root[a] - highest) * value[a]
    for a in range(root.shape[0]):
        adjoint[a] = grad * exp(root[a] - highest) / total
        grad_root[a] = adjoint[a] * value[a]


@inlined
def posterior_mass(value, adjoint):
    """The posterior probability of a cell, summed over its labels (times the gradient that arrives from outside)."""
    mass = 0.0
    for a in range(value.shape[0]):
        mass += abs(value[a] * adjoint[a])
    return mass


@inlined
def buffers_for(length, labels):
    """Buffers for one cell: its children's indices, weights, left and right values, and pairs of labels."""
    return (
        np.empty((2, 2, length), np.int64),
        np.empty((2, length)),
        np.empty((2, labels, length)),
        np.empty((2, labels, length)),
        np.empty(2 * labels * labels),
    )


@inlined
def children_of_span(max_length, i, width, cells):
    """Write the indices of a span's children: the same for both orientations."""
    for inner in range(width - 1):
        left, right = span_at(max_length, inner + 1, i), span_at(max_length, width - inner - 1, i + inner + 1)
        for orientation in range(2):
            cells[orientation, 0, inner] = left
            cells[orientation, 1, inner] = right


@compiled
def inside(b, rules, highest, root, tokens, splits, lengths, splits_at, log_partition, values, scales):
    """The log-partition, from the summed weights of all trees over every span by label.

    beta(i,i+1,a) = exp token(i,a)
    beta(i,k,a) = sum over j, o, b, c of rule(o,a,b,c) * split(i,j,k,o) * beta(i,j,b) * beta(j,k,c)
    """
    length, max_length = lengths[b], tokens.shape[1]
    chart, scale = values[b], scales[b]
    cells, weights, left, right, pairs = buffers_for(length, root.shape[0])
    for token in range(length):
        scale[token] = exponentials(tokens[b, token], chart[token])
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first, at = splits_at[width] + i * (width - 1), span_at(max_length, width, i)
            children_of_span(max_length, i, width, cells)
            span_splits = splits[b, first : first + width - 1]
            top = gather_children(cells, span_splits, chart, scale, weights, left, right)
            sum_over_splits(width - 1, left, right, pairs)
            scale[at] = top + highest + log(apply_rules(pairs, rules, chart[at]))
    at = span_at(max_length, length, 0)
    log_partition[b] = root_log_sum(root, chart[at], scale[at])


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
    lengths,
    splits_at,
    grad_rules,
    grad_root,
    grad_tokens,
    grad_splits,
):
    """The adjoints of rules, root, tokens and splits: their posterior expectations, times the incoming gradient.

    Wide cells come first: the adjoint of a cell is complete when every wider cell that has it as a child is done. What
    the forward pass gathered for a cell is gathered again, which is cheaper than storing it.
    """
    if grad[b] == 0.0:
        return
    length, max_length, labels = lengths[b], grad_tokens.shape[1], root.shape[0]
    chart, scale, adjoint = values[b], scales[b], np.zeros_like(values[b])
    cells, weights, left, right, pairs = buffers_for(length, labels)
    grad_pairs, flow = np.empty_like(pairs), np.empty((labels, length))
    at = span_at(max_length, length, 0)
    root_backward(grad[b], root, chart[at], adjoint[at], grad_root[b])
    least = NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            at = span_at(max_length, width, i)
            if posterior_mass(chart[at], adjoint[at]) < least:
                continue
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            grad_span_splits = grad_splits[b, first : first + width - 1]
            # the forward pass of this cell again, then its three steps backwards
            children_of_span(max_length, i, width, cells)
            top = gather_children(cells, span_splits, chart, scale, weights, left, right)
            sum_over_splits(width - 1, left, right, pairs)
            # what `apply_rules` divided the values by in the forward pass: scale = top + highest + log(largest)
            largest = exp(scale[at] - top - highest)
            apply_rules_backward(pairs, rules, adjoint[at], largest, grad_rules[b], grad_pairs)
            gather_children_backward(
                cells, width - 1, grad_pairs, weights, left, right, flow, adjoint, grad_span_splits
            )
    # value * adjoint is the posterior of a label, which is the adjoint of its score
    for token in range(length):
        for a in range(labels):
            grad_tokens[b, token, a] = chart[token, a] * adjoint[token, a]


@compiled
def best_inside(b, rules, tokens, splits, lengths, splits_at, chart):
    """The log-weight of the best tree over every span by label; here ``rules[a, pair]`` are log-weights.

    best(i,k,a) = max over j, o, b, c of rule(o,a,b,c) + split(i,j,k,o) + best(i,j,b) + best(j,k,c)
    """
    length, max_length, labels = lengths[b], tokens.shape[1], tokens.shape[2]
    best, half = chart[b], labels * labels
    pairs = np.empty(2 * half, chart.dtype)
    for token in range(length):
        best[token] = tokens[b, token]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first, at = splits_at[width] + i * (width - 1), span_at(max_length, width, i)
            # pairs[o, b, c]: the best pair of children with these labels, over all split points
            pairs[:] = -np.inf
            for inner in range(width - 1):
                left = best[span_at(max_length, inner + 1, i)]
                right = best[span_at(max_length, width - inner - 1, i + inner + 1)]
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


# --- Charts with output positions -----------------------------------------------------------------------------


@inlined
def children_of_cell(chart_at, max_length, i, width, p, cells):
    """Write the indices of a cell's children: those of a span whose output starts at p.

    Under a straight node the left child starts at p and the right child follows it; under an inverted node the right
    child starts at p.
    """
    for inner in range(width - 1):
        left_width, right_width = inner + 1, width - inner - 1
        left = row_at(chart_at, max_length, left_width, i) + p
        right = row_at(chart_at, max_length, right_width, i + left_width) + p
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
    """The log of the sum over all labelled trees times their emissions.

    C(i,i+1,p,a) = emission(i,p) * token(i,a)
    C(i,k,p,a) = sum over j, b, c of rule(0,a,b,c) * split(i,j,k,0) * C(i,j,p,b) * C(j,k,p+j-i,c)
                                   + rule(1,a,b,c) * split(i,j,k,1) * C(i,j,p+k-j,b) * C(j,k,p,c)
    """
    length, max_length = lengths[b], tokens.shape[1]
    chart, scale = values[b], scales[b]
    cells, weights, left, right, pairs = buffers_for(length, root.shape[0])
    for token in range(length):
        at = row_at(chart_at, max_length, 1, token)
        own_scale = exponentials(tokens[b, token], chart[at])
        for p in range(length):
            chart[at + p] = chart[at]
            scale[at + p] = own_scale + emissions[b, token, p]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            for p in range(length - width + 1):
                at = row_at(chart_at, max_length, width, i) + p
                children_of_cell(chart_at, max_length, i, width, p, cells)
                top = gather_children(cells, span_splits, chart, scale, weights, left, right)
                sum_over_splits(width - 1, left, right, pairs)
                scale[at] = top + highest + log(apply_rules(pairs, rules, chart[at]))
    at = row_at(chart_at, max_length, length, 0)
    log_sum[b] = root_log_sum(root, chart[at], scale[at])


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
    """The adjoints of rules, root, tokens, splits and emissions: `inside_backward` for cells with output positions.

    Most of the cells have hardly any posterior mass; these are skipped.
    """
    if grad[b] == 0.0:
        return
    length, max_length, labels = lengths[b], grad_tokens.shape[1], root.shape[0]
    chart, scale, adjoint = values[b], scales[b], np.zeros_like(values[b])
    cells, weights, left, right, pairs = buffers_for(length, labels)
    grad_pairs, flow = np.empty_like(pairs), np.empty((labels, length))
    at = row_at(chart_at, max_length, length, 0)
    root_backward(grad[b], root, chart[at], adjoint[at], grad_root[b])
    least = NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            span_splits = splits[b, first : first + width - 1]
            grad_span_splits = grad_splits[b, first : first + width - 1]
            for p in range(length - width + 1):
                at = row_at(chart_at, max_length, width, i) + p
                if posterior_mass(chart[at], adjoint[at]) < least:
                    continue
                children_of_cell(chart_at, max_length, i, width, p, cells)
                top = gather_children(cells, span_splits, chart, scale, weights, left, right)
                sum_over_splits(width - 1, left, right, pairs)
                # as in `inside_backward`: what the values of this cell were divided by
                largest = exp(scale[at] - top - highest)
                apply_rules_backward(pairs, rules, adjoint[at], largest, grad_rules[b], grad_pairs)
                gather_children_backward(
                    cells, width - 1, grad_pairs, weights, left, right, flow, adjoint, grad_span_splits
                )
    for token in range(length):
        for p in range(length):
            at = row_at(chart_at, max_length, 1, token) + p
            for a in range(labels):
                posterior = chart[at, a] * adjoint[at, a]
                grad_tokens[b, token, a] += posterior
                grad_emissions[b, token, p] += posterior
