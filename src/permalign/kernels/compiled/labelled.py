"""Labelled trees: inside sums, O(n^3 K^2 + n^2 K^3), and the exact tagging likelihood, O(n^4 K^2 + n^3 K^3).

All in double precision and probability space. A cell holds its labels' values divided by the largest, and the
logarithm of that largest, its scale. Rules arrive as ``rules[pair, a] = exp(score - highest)`` with
``pair = (orientation K + left label) K + right label``; the highest score is added to scales.

Going back, the adjoint of a cell's values is kept in the same scale, ``outer(a) = d log Z / d value(a)``, so that
``value(a) * outer(a)`` is the posterior probability of the cell with that label.
"""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.positions import row_at

_NEGLIGIBLE = 1e-30  # posterior mass below which a cell has no say in gradients


@inlined
def span_at(words, width, i):
    """Where a span stands in a packed chart."""
    return (width - 1) * (words + 1) - width * (width - 1) // 2 + i


@inlined
def add_pairs(pairs, at, weight, left, right):
    """pairs(b,c) += weight * left(b) * right(c), from ``at`` on."""
    labels = left.shape[0]
    for b in range(labels):
        factor = weight * left[b]
        row = pairs[at + b * labels : at + (b + 1) * labels]
        for c in range(labels):
            row[c] += factor * right[c]


@inlined
def finish(pairs, rules, value):
    """value(a) = sum over pairs of rules(pair, a) * pairs(pair), scaled by its maximum, which is returned."""
    labels = value.shape[0]
    value[:] = 0.0
    for pair in range(pairs.shape[0]):
        weight = pairs[pair]
        row = rules[pair]
        for a in range(labels):
            value[a] += weight * row[a]
    most = 0.0
    for a in range(labels):
        most = max(most, value[a])
    for a in range(labels):
        value[a] /= most
    return most


@inlined
def spread(pairs, rules, outer, most, grad_rules, grad_pairs):
    """The adjoint of `finish`: of the rules (times their values: posterior counts) and of the pairs."""
    labels = outer.shape[0]
    for pair in range(pairs.shape[0]):
        row, grad_row = rules[pair], grad_rules[pair]
        weight, total = pairs[pair] / most, 0.0
        for a in range(labels):
            flow = row[a] * outer[a]
            total += flow
            grad_row[a] += flow * weight
        grad_pairs[pair] = total / most


@inlined
def spread_pairs(grad_pairs, at, weight, left, right, outer_left, outer_right):
    """The adjoint of `add_pairs`: of both children; returns the posterior of the split."""
    labels, posterior = left.shape[0], 0.0
    for b in range(labels):
        row = grad_pairs[at + b * labels : at + (b + 1) * labels]
        factor, total = weight * left[b], 0.0
        for c in range(labels):
            total += row[c] * right[c]
            outer_right[c] += factor * row[c]
        outer_left[b] += weight * total
        posterior += factor * total
    return posterior


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


@compiled
def span_pairs(i, width, words, splits, values, scales, pairs):
    """Sum a span's pairs of labels over its split points; returns the logarithm of their scale."""
    half = pairs.shape[0] // 2
    top = -np.inf
    for inner in range(width - 1):
        children = (
            scales[span_at(words, inner + 1, i)] + scales[span_at(words, width - inner - 1, i + inner + 1)]
        )
        top = max(top, children + max(splits[inner, 0], splits[inner, 1]))
    pairs[:] = 0.0
    for inner in range(width - 1):
        at_left, at_right = (
            span_at(words, inner + 1, i),
            span_at(words, width - inner - 1, i + inner + 1),
        )
        for orientation in range(2):
            weight = exp(splits[inner, orientation] + scales[at_left] + scales[at_right] - top)
            if weight > 0.0:
                add_pairs(pairs, orientation * half, weight, values[at_left], values[at_right])
    return top


@compiled
def inside(b, rules, highest, root, tokens, splits, lengths, splits_at, log_partition, values, scales):
    """beta(i,k,a) = sum_{j,o,b,c} rule(o,a,b,c) split(i,j,k,o) beta(i,j,b) beta(j,k,c)."""
    length, words = lengths[b], tokens.shape[1]
    chart, scale = values[b], scales[b]
    pairs = np.empty(rules.shape[0])
    for token in range(length):
        scale[token] = from_scores(tokens[b, token], chart[token])
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            own = splits[b, first : first + width - 1]
            top = span_pairs(i, width, words, own, chart, scale, pairs)
            at = span_at(words, width, i)
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
    length, words, half = lengths[b], grad_tokens.shape[1], rules.shape[0] // 2
    chart, scale, outer = values[b], scales[b], np.zeros_like(values[b])
    pairs, grad_pairs = np.empty(rules.shape[0]), np.empty(rules.shape[0])
    at = span_at(words, length, 0)
    outer_of_root(grad[b], root, chart[at], outer[at], grad_root[b])
    least = _NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            at = span_at(words, width, i)
            if mass_of(chart[at], outer[at]) < least:
                continue
            first = splits_at[width] + i * (width - 1)
            own = splits[b, first : first + width - 1]
            top = span_pairs(i, width, words, own, chart, scale, pairs)
            spread(pairs, rules, outer[at], exp(scale[at] - top - highest), grad_rules[b], grad_pairs)
            for inner in range(width - 1):
                at_left, at_right = (
                    span_at(words, inner + 1, i),
                    span_at(words, width - inner - 1, i + inner + 1),
                )
                for orientation in range(2):
                    weight = exp(own[inner, orientation] + scale[at_left] + scale[at_right] - top)
                    if weight > 0.0:
                        grad_splits[b, first + inner, orientation] = spread_pairs(
                            grad_pairs,
                            orientation * half,
                            weight,
                            chart[at_left],
                            chart[at_right],
                            outer[at_left],
                            outer[at_right],
                        )
    for token in range(length):
        for a in range(root.shape[0]):
            grad_tokens[b, token, a] = chart[token, a] * outer[token, a]


@compiled
def best_inside(b, rules, tokens, splits, lengths, splits_at, chart):
    """The log weight of the best tree over every span by label; ``rules[pair, a]`` are log weights here."""
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
            value = best[at]
            value[:] = -np.inf
            for pair in range(2 * half):
                for a in range(labels):
                    value[a] = max(value[a], pairs[pair] + rules[pair, a])


# --- With output positions ------------------------------------------------------------------------------------


@inlined
def child_cells(chart_at, words, i, p, left_width, right_width, orientation):
    """The cells of the two children of a node whose output starts at p."""
    left, right = (
        row_at(chart_at, words, left_width, i) + p,
        row_at(chart_at, words, right_width, i + left_width) + p,
    )
    if orientation == 0:
        return left, right + left_width
    return left + right_width, right


@compiled
def cell_pairs(i, p, width, words, chart_at, splits, values, scales, pairs):
    """`span_pairs` for a span whose output starts at p."""
    half = pairs.shape[0] // 2
    top = -np.inf
    for inner in range(width - 1):
        for orientation in range(2):
            left, right = child_cells(chart_at, words, i, p, inner + 1, width - inner - 1, orientation)
            top = max(top, splits[inner, orientation] + scales[left] + scales[right])
    pairs[:] = 0.0
    for inner in range(width - 1):
        for orientation in range(2):
            left, right = child_cells(chart_at, words, i, p, inner + 1, width - inner - 1, orientation)
            weight = exp(splits[inner, orientation] + scales[left] + scales[right] - top)
            if weight > 0.0:
                add_pairs(pairs, orientation * half, weight, values[left], values[right])
    return top


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
    pairs = np.empty(rules.shape[0])
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
                top = cell_pairs(i, p, width, words, chart_at, own, chart, scale, pairs)
                at = row_at(chart_at, words, width, i) + p
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
    length, words, half = lengths[b], grad_tokens.shape[1], rules.shape[0] // 2
    chart, scale, outer = values[b], scales[b], np.zeros_like(values[b])
    pairs, grad_pairs = np.empty(rules.shape[0]), np.empty(rules.shape[0])
    at = row_at(chart_at, words, length, 0)
    outer_of_root(grad[b], root, chart[at], outer[at], grad_root[b])
    least = _NEGLIGIBLE * abs(grad[b])
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            own = splits[b, first : first + width - 1]
            for p in range(length - width + 1):
                at = row_at(chart_at, words, width, i) + p
                if mass_of(chart[at], outer[at]) < least:
                    continue
                top = cell_pairs(i, p, width, words, chart_at, own, chart, scale, pairs)
                spread(pairs, rules, outer[at], exp(scale[at] - top - highest), grad_rules[b], grad_pairs)
                for inner in range(width - 1):
                    for orientation in range(2):
                        left, right = child_cells(
                            chart_at, words, i, p, inner + 1, width - inner - 1, orientation
                        )
                        weight = exp(own[inner, orientation] + scale[left] + scale[right] - top)
                        if weight > 0.0:
                            grad_splits[b, first + inner, orientation] += spread_pairs(
                                grad_pairs,
                                orientation * half,
                                weight,
                                chart[left],
                                chart[right],
                                outer[left],
                                outer[right],
                            )
    for token in range(length):
        for p in range(length):
            at = row_at(chart_at, words, 1, token) + p
            for a in range(root.shape[0]):
                posterior = chart[at, a] * outer[at, a]
                grad_tokens[b, token, a] += posterior
                grad_emissions[b, token, p] += posterior
