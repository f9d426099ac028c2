"""Charts that know output positions: the expected permutation and the exact tagging likelihood, O(n^4)."""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined


@inlined
def row_at(chart_at, words, width, i):  # type: ignore[no-untyped-def]
    """Where the positions of the span (i, i + width) begin in a positioned chart."""
    return chart_at[width] + i * (words - width + 1)


@inlined
def child_rows(chart, chart_at, words, i, left_width, right_width, positions):  # type: ignore[no-untyped-def]
    """The left child's row from p on and from p + right_width on; the right child's from p and p + left_width on."""
    left_at = row_at(chart_at, words, left_width, i)
    right_at = row_at(chart_at, words, right_width, i + left_width)
    return (
        chart[left_at : left_at + positions],
        chart[left_at + right_width : left_at + right_width + positions],
        chart[right_at : right_at + positions],
        chart[right_at + left_width : right_at + left_width + positions],
    )


@compiled
def expected_matrix(b, rules, lengths, splits_at, chart_at, matrix, chart):  # type: ignore[no-untyped-def]
    """mu(i,k,p): the probability that (i,k) is a constituent and its output starts at p. O(n^4).

        S:  mu(i,j,p)     += G_S mu(i,k,p)      mu(j,k,p+j-i) += G_S mu(i,k,p)
        I:  mu(i,j,p+k-j) += G_I mu(i,k,p)      mu(j,k,p)     += G_I mu(i,k,p)

    ``chart`` (mu) arrives zeroed; ``matrix`` is E[M], [position, token].
    """
    length, words = lengths[b], matrix.shape[1]
    zero = rules.dtype.type(0)
    mu = chart[b]
    mu[row_at(chart_at, words, length, 0)] = 1
    for width in range(length, 1, -1):
        positions = length - width + 1
        for i in range(length - width + 1):
            at = row_at(chart_at, words, width, i)
            parent = mu[at : at + positions]
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                straight, inverted = rules[b, first + inner, 0], rules[b, first + inner, 1]
                if straight == zero and inverted == zero:
                    continue
                left, left_late, right, right_late = child_rows(
                    mu, chart_at, words, i, inner + 1, width - inner - 1, positions
                )
                for p in range(positions):
                    left[p] += straight * parent[p]
                for p in range(positions):
                    left_late[p] += inverted * parent[p]
                for p in range(positions):
                    right_late[p] += straight * parent[p]
                for p in range(positions):
                    right[p] += inverted * parent[p]
    for token in range(length):
        at = row_at(chart_at, words, 1, token)
        for p in range(length):
            matrix[b, p, token] = mu[at + p]
    for token in range(length, words):
        matrix[b, token, token] = 1


@compiled
def expected_matrix_backward(b, grad, rules, chart, lengths, splits_at, chart_at, grad_rules):  # type: ignore[no-untyped-def]
    """The same loop from narrow to wide, with the adjoint of mu:

        adjoint(i,k,p) = sum_j G_S (c_left[p] + c_right[p+u]) + G_I (c_right[p] + c_left[p+v])

    and the adjoint of G_S (G_I) is the product of mu(i,k,.) with the first (second) bracket.
    """
    length, words = lengths[b], grad.shape[1]
    mu, adjoint = chart[b], np.empty_like(chart[b])
    for token in range(length):
        at = row_at(chart_at, words, 1, token)
        for p in range(length):
            adjoint[at + p] = grad[b, p, token]
    for width in range(2, length + 1):
        positions = length - width + 1
        for i in range(length - width + 1):
            at = row_at(chart_at, words, width, i)
            parent, total = mu[at : at + positions], adjoint[at : at + positions]
            total[:] = 0
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                straight, inverted = rules[b, first + inner, 0], rules[b, first + inner, 1]
                left, left_late, right, right_late = child_rows(
                    adjoint, chart_at, words, i, inner + 1, width - inner - 1, positions
                )
                grad_straight, grad_inverted = rules.dtype.type(0), rules.dtype.type(0)
                for p in range(positions):
                    in_order = left[p] + right_late[p]
                    swapped = right[p] + left_late[p]
                    total[p] += straight * in_order + inverted * swapped
                    grad_straight += parent[p] * in_order
                    grad_inverted += parent[p] * swapped
                grad_rules[b, first + inner, 0] = grad_straight
                grad_rules[b, first + inner, 1] = grad_inverted


@compiled
def tagging_inside(b, scores, emissions, lengths, splits_at, chart_at, log_sum, chart):  # type: ignore[no-untyped-def]
    """C(i,k,p): the log weight of all derivations of (i,k) that put its words at p, p+1, ... times emissions.

        C(i,i+1,p) = emission(i, p)
        C(i,k,p) = logsumexp_j { score_S + C(i,j,p) + C(j,k,p+j-i),  score_I + C(j,k,p) + C(i,j,p+k-j) }
    """
    length, words = lengths[b], emissions.shape[1]
    inner_chart = chart[b]
    highest, total = np.empty(length, scores.dtype), np.empty(length, scores.dtype)
    for token in range(length):
        at = row_at(chart_at, words, 1, token)
        for p in range(length):
            inner_chart[at + p] = emissions[b, token, p]
    for width in range(2, length + 1):
        positions = length - width + 1
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            highest[:positions] = -np.inf
            total[:positions] = 0
            for inner in range(width - 1):
                straight, inverted = scores[b, first + inner, 0], scores[b, first + inner, 1]
                left, left_late, right, right_late = child_rows(
                    inner_chart, chart_at, words, i, inner + 1, width - inner - 1, positions
                )
                for p in range(positions):
                    in_order = straight + left[p] + right_late[p]
                    swapped = inverted + right[p] + left_late[p]
                    highest[p] = max(highest[p], max(in_order, swapped))
            for inner in range(width - 1):
                straight, inverted = scores[b, first + inner, 0], scores[b, first + inner, 1]
                left, left_late, right, right_late = child_rows(
                    inner_chart, chart_at, words, i, inner + 1, width - inner - 1, positions
                )
                for p in range(positions):
                    total[p] += exp(straight + left[p] + right_late[p] - highest[p])
                    total[p] += exp(inverted + right[p] + left_late[p] - highest[p])
            at = row_at(chart_at, words, width, i)
            for p in range(positions):
                inner_chart[at + p] = highest[p] + log(total[p])
    log_sum[b] = inner_chart[row_at(chart_at, words, length, 0)]


@compiled
def tagging_inside_backward(  # type: ignore[no-untyped-def]
    b, grad, scores, chart, lengths, splits_at, chart_at, grad_scores, grad_emissions
):
    """From wide to narrow, every term takes its share exp(term - C(i,k,p)) of the cell's adjoint."""
    length, words = lengths[b], grad_emissions.shape[1]
    inner_chart, adjoint = chart[b], np.zeros_like(chart[b])
    zero = scores.dtype.type(0)
    adjoint[row_at(chart_at, words, length, 0)] = grad[b]
    for width in range(length, 1, -1):
        positions = length - width + 1
        for i in range(length - width + 1):
            at = row_at(chart_at, words, width, i)
            cell, cell_adjoint = inner_chart[at : at + positions], adjoint[at : at + positions]
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                straight, inverted = scores[b, first + inner, 0], scores[b, first + inner, 1]
                left, left_late, right, right_late = child_rows(
                    inner_chart, chart_at, words, i, inner + 1, width - inner - 1, positions
                )
                to_left, to_left_late, to_right, to_right_late = child_rows(
                    adjoint, chart_at, words, i, inner + 1, width - inner - 1, positions
                )
                sum_straight, sum_inverted = zero, zero
                for p in range(positions):
                    if cell_adjoint[p] == zero:
                        continue
                    in_order = cell_adjoint[p] * exp(straight + left[p] + right_late[p] - cell[p])
                    swapped = cell_adjoint[p] * exp(inverted + right[p] + left_late[p] - cell[p])
                    sum_straight += in_order
                    sum_inverted += swapped
                    to_left[p] += in_order
                    to_right_late[p] += in_order
                    to_right[p] += swapped
                    to_left_late[p] += swapped
                grad_scores[b, first + inner, 0] = sum_straight
                grad_scores[b, first + inner, 1] = sum_inverted
    for token in range(length):
        at = row_at(chart_at, words, 1, token)
        for p in range(length):
            grad_emissions[b, token, p] = adjoint[at + p]
