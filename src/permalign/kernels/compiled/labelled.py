"""Labelled trees: inside sums and the best tree, O(n^3 K^2 + n^2 K^3).

All in double precision and probability space. A cell holds its labels' values divided by the largest, and the
logarithm of that largest, its scale. Rules arrive as ``rules[a, pair] = exp(score - highest)`` with
``pair = (orientation K + left label) K + right label``; the highest score is added to scales.

Going back, the adjoint of a cell's values is kept in the same scale, ``outer(a) = d log Z / d value(a)``, so that
``value(a) * outer(a)`` is the posterior probability of the cell with that label.

The children of a cell are gathered first, ``[orientation, label, split point]``, so that the innermost loops run along
split points or pairs of labels, which are many, and not along labels, which are few.
"""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.separable import row_at

NEGLIGIBLE = 1e-30  # posterior mass below which a cell has no say in gradients


@inlined
def span_at(words, width, i):
    """Where a span stands in a packed chart."""
    return (width - 1) * (words + 1) - width * (width - 1) // 2 + i


@compiled
def gather(cells, splits, values, scales, weights, left, right):
    """The children of a cell: ``left`` times the weight of its split point, and ``right``.

    ``cells`` are [orientation, child, split point]. Returns the logarithm of the scale of the weights.
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
            first, second = values[cells[orientation, 0, j]], values[cells[orientation, 1, j]]
            for a in range(labels):
                left[orientation, a, j] = weight * first[a]
                right[orientation, a, j] = second[a]
    return top


@compiled
def pair_up(points, left, right, pairs):
    """pairs(o,b,c) = sum_j left(o,b,j) * right(o,c,j)."""
    labels = left.shape[1]
    for orientation in range(2):
        for b in range(labels):
            for c in range(labels):
                first, second = left[orientation, b], right[orientation, c]
                total = 0.0
                for j in range(points):
                    total += first[j] * second[j]
                pairs[(orientation * labels + b) * labels + c] = total


@compiled
def finish(pairs, rules, value):
    """value(a) = sum over pairs of rules(a, pair) * pairs(pair), divided by its maximum, which is returned."""
    labels, most = value.shape[0], 0.0
    for a in range(labels):
        row, total = rules[a], 0.0
        for pair in range(pairs.shape[0]):
            total += row[pair] * pairs[pair]
        value[a] = total
        most = max(most, total)
    for a in range(labels):
        value[a] /= most
    return most


@compiled
def spread(pairs, rules, outer, most, grad_rules, grad_pairs):
    """The adjoint of `finish`: of the pairs, and of the rules times their values (how often they are used)."""
    grad_pairs[:] = 0.0
    for a in range(outer.shape[0]):
        row, grad_row, factor = rules[a], grad_rules[a], outer[a] / most
        if factor != 0.0:
            for pair in range(pairs.shape[0]):
                flow = row[pair] * factor
                grad_pairs[pair] += flow
                grad_row[pair] += flow * pairs[pair]


@inlined
def mix(points, factors, at, step, rows, total):
    """total(j) = sum_r factors(at + r step) * rows(r, j), four rows at a time."""
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
def part(cells, points, grad_pairs, weights, left, right, flow, outer, grad_splits):
    """The adjoint of `gather` and `pair_up`: of both children and of the splits; ``flow`` is room for one child."""
    labels = left.shape[1]
    for orientation in range(2):
        at = orientation * labels * labels
        for b in range(labels):
            mix(points, grad_pairs, at + b * labels, 1, right[orientation], flow[b])
        for j in range(points):
            to_left, weight, posterior = outer[cells[orientation, 0, j]], weights[orientation, j], 0.0
            for b in range(labels):
                to_left[b] += weight * flow[b, j]
                posterior += left[orientation, b, j] * flow[b, j]
            grad_splits[j, orientation] += posterior
        for c in range(labels):
            mix(points, grad_pairs, at + c, labels, left[orientation], flow[c])
        for j in range(points):
            to_right = outer[cells[orientation, 1, j]]
            for c in range(labels):
                to_right[c] += flow[c, j]


@inlined
def from_scores(scores, value):
    """Exponentials scaled by their maximum, whose logarithm is returned."""
    scale = scores[0]
    for a in range(scores.shape[0]):
        scale = max(scale, scores[a])
    for a in range(scores.shape[0]):
        value[a] = exp(scores[a] - scale)
    return scale


@inlined
def at_root(root, value, scale):
    """log sum_a exp(root(a)) * value(a), in the scale of the value."""
    highest = root[0]
    for a in range(root.shape[0]):
        highest = max(highest, root[a])
    total = 0.0
    for a in range(root.shape[0]):
        total += exp(root[a] - highest) * value[a]
    return log(total) + highest + scale


@inlined
def outer_of_root(grad, root, value, outer, grad_root):
    """The adjoints of `at_root`: of the value and of the root's scores."""
    highest = root[0]
    for a in range(root.shape[0]):
        highest = max(highest, root[a])
    total = 0.0
    for a in range(root.shape[0]):
        total += exp(root[a] - highest) * value[a]
    for a in range(root.shape[0]):
        outer[a] = grad * exp(root[a] - highest) / total
        grad_root[a] = outer[a] * value[a]


@inlined
def mass_of(value, outer):
    """The posterior mass of a cell."""
    mass = 0.0
    for a in range(value.shape[0]):
        mass += abs(value[a] * outer[a])
    return mass


@inlined
def room_for(length, labels):
    """What a cell's children are gathered in: cells, weights, left and right values, and pairs of labels."""
    return (
        np.empty((2, 2, length), np.int64),
        np.empty((2, length)),
        np.empty((2, labels, length)),
        np.empty((2, labels, length)),
        np.empty(2 * labels * labels),
    )


@inlined
def children_of_span(words, i, width, cells):
    """Where the children of a span stand, for both orientations."""
    for inner in range(width - 1):
        left, right = span_at(words, inner + 1, i), span_at(words, width - inner - 1, i + inner + 1)
        for orientation in range(2):
            cells[orientation, 0, inner] = left
            cells[orientation, 1, inner] = right


@compiled
def inside(b, rules, highest, root, tokens, splits, lengths, splits_at, log_partition, values, scales):
    """beta(i,k,a) = sum_{j,o,b,c} rule(o,a,b,c) split(i,j,k,o) beta(i,j,b) beta(j,k,c)."""
    length, words = lengths[b], tokens.shape[1]
    chart, scale = values[b], scales[b]
    cells, weights, left, right, pairs = room_for(length, root.shape[0])
    for token in range(length):
        scale[token] = from_scores(tokens[b, token], chart[token])
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first, at = splits_at[width] + i * (width - 1), span_at(words, width, i)
            children_of_span(words, i, width, cells)
            own = splits[b, first : first + width - 1]
            top = gather(cells, own, chart, scale, weights, left, right)
            pair_up(width - 1, left, right, pairs)
            scale[at] = top + highest + log(finish(pairs, rules, chart[at]))
    at = span_at(words, length, 0)
    log_partition[b] = at_root(root, chart[at], scale[at])


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
    """From wide to narrow, every cell gives its posterior mass to what it was made of."""
    if grad[b] == 0.0:
        return
    length, words, labels = lengths[b], grad_tokens.shape[1], root.shape[0]
    chart, scale, outer = values[b], scales[b], np.zeros_like(values[b])
    cells, weights, left, right, pairs = room_for(length, labels)
    grad_pairs, flow = np.empty_like(pairs), np.empty((labels, length))
    at = span_at(words, length, 0)
    outer_of_root(grad[b], root, chart[at], outer[at], grad_root[b])
    least = NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            at = span_at(words, width, i)
            if mass_of(chart[at], outer[at]) < least:
                continue
            first = splits_at[width] + i * (width - 1)
            own, grad_own = splits[b, first : first + width - 1], grad_splits[b, first : first + width - 1]
            children_of_span(words, i, width, cells)
            top = gather(cells, own, chart, scale, weights, left, right)
            pair_up(width - 1, left, right, pairs)
            spread(pairs, rules, outer[at], exp(scale[at] - top - highest), grad_rules[b], grad_pairs)
            part(cells, width - 1, grad_pairs, weights, left, right, flow, outer, grad_own)
    for token in range(length):
        for a in range(labels):
            grad_tokens[b, token, a] = chart[token, a] * outer[token, a]


@compiled
def best_inside(b, rules, tokens, splits, lengths, splits_at, chart):
    """The log weight of the best tree over every span by label; ``rules[a, pair]`` are log weights here."""
    length, words, labels = lengths[b], tokens.shape[1], tokens.shape[2]
    best, half = chart[b], labels * labels
    pairs = np.empty(2 * half, chart.dtype)
    for token in range(length):
        best[token] = tokens[b, token]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first, at = splits_at[width] + i * (width - 1), span_at(words, width, i)
            pairs[:] = -np.inf
            for inner in range(width - 1):
                left = best[span_at(words, inner + 1, i)]
                right = best[span_at(words, width - inner - 1, i + inner + 1)]
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


# --- positions


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
