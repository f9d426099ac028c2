"""x"""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined

# --- Inside sums, rule probabilities and rule marginals


@compiled
def inside(b, scores, lengths, splits_at, maximise, log_partition, gamma):
    """gamma(i,j,k,R) = score + beta(i,j) + beta(j,k); beta(i,k) = logsumexp (or the maximum) over j and R."""
    length = lengths[b]
    beta = np.zeros((length + 1, length + 1), scores.dtype)  # [i, k], and mirrored: [k, i]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            k = i + width
            first = splits_at[width] + i * (width - 1)
            best = gamma.dtype.type(-np.inf)
            for inner in range(width - 1):
                children = beta[i, i + 1 + inner] + beta[k, i + 1 + inner]
                straight = scores[b, first + inner, 0] + children
                inverted = scores[b, first + inner, 1] + children
                gamma[b, first + inner, 0] = straight
                gamma[b, first + inner, 1] = inverted
                best = max(best, max(straight, inverted))
            if not maximise:
                total = gamma.dtype.type(0)
                for inner in range(width - 1):
                    total += exp(gamma[b, first + inner, 0] - best) + exp(gamma[b, first + inner, 1] - best)
                best += log(total)
            beta[i, k] = best
            beta[k, i] = best
    log_partition[b] = beta[0, length]


@compiled
def inside_backward(b, grad_partition, grad_gamma, gamma, lengths, splits_at, grad_scores):
    """From wide to narrow: total = gbar + bbar(i,k) * G; it is the score's adjoint and joins both children's."""
    length = lengths[b]
    adjoint = np.zeros((length + 1, length + 1), gamma.dtype)  # [i, k] as a left child, [k, i] as a right one
    adjoint[0, length] = grad_partition[b]
    zero = gamma.dtype.type(0)
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            k = i + width
            first = splits_at[width] + i * (width - 1)
            span = adjoint[i, k] + adjoint[k, i]
            best = gamma.dtype.type(-np.inf)
            for inner in range(width - 1):
                best = max(best, max(gamma[b, first + inner, 0], gamma[b, first + inner, 1]))
            normaliser = zero
            for inner in range(width - 1):
                for rule in range(2):
                    weight = exp(gamma[b, first + inner, rule] - best)
                    grad_scores[b, first + inner, rule] = weight
                    normaliser += weight
            span /= normaliser
            for inner in range(width - 1):
                straight = grad_gamma[b, first + inner, 0] + span * grad_scores[b, first + inner, 0]
                inverted = grad_gamma[b, first + inner, 1] + span * grad_scores[b, first + inner, 1]
                grad_scores[b, first + inner, 0] = straight
                grad_scores[b, first + inner, 1] = inverted
                adjoint[i, i + 1 + inner] += straight + inverted
                adjoint[k, i + 1 + inner] += straight + inverted


@compiled
def span_softmax(b, logits, lengths, splits_at, rules):
    """Normalise over the 2(w-1) options of every span."""
    length = lengths[b]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            options, out = logits[b, first : first + width - 1], rules[b, first : first + width - 1]
            best = logits.dtype.type(-np.inf)
            for inner in range(width - 1):
                best = max(best, max(options[inner, 0], options[inner, 1]))
            total = logits.dtype.type(0)
            for inner in range(width - 1):
                for rule in range(2):
                    out[inner, rule] = exp(options[inner, rule] - best)
                    total += out[inner, rule]
            for inner in range(width - 1):
                for rule in range(2):
                    out[inner, rule] /= total


@compiled
def span_softmax_backward(b, grad, rules, lengths, splits_at, grad_logits):
    """The adjoint of a softmax: G * (grad - <grad, G>), span by span."""
    length = lengths[b]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            mean = rules.dtype.type(0)
            for inner in range(first, first + width - 1):
                mean += grad[b, inner, 0] * rules[b, inner, 0] + grad[b, inner, 1] * rules[b, inner, 1]
            for inner in range(first, first + width - 1):
                for rule in range(2):
                    grad_logits[b, inner, rule] = rules[b, inner, rule] * (grad[b, inner, rule] - mean)


@compiled
def span_one_hot(b, weights, lengths, splits_at, one_hot):
    """One at the heaviest option of every span; the first of equals."""
    length = lengths[b]
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            first = splits_at[width] + i * (width - 1)
            best_split, best_rule = first, 0
            for split in range(first, first + width - 1):
                for rule in range(2):
                    if weights[b, split, rule] > weights[b, best_split, best_rule]:
                        best_split, best_rule = split, rule
            one_hot[b, best_split, best_rule] = 1


@compiled
def rule_marginals(b, rules, lengths, splits_at, marginals):
    """mass(root) = 1; every option passes G * mass(parent) on to both children."""
    length = lengths[b]
    mass = np.zeros((length + 1, length + 1), rules.dtype)  # [i, k] as a left child, [k, i] as a right one
    mass[0, length] = 1
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            k = i + width
            first = splits_at[width] + i * (width - 1)
            span = mass[i, k] + mass[k, i]
            for inner in range(width - 1):
                straight = span * rules[b, first + inner, 0]
                inverted = span * rules[b, first + inner, 1]
                marginals[b, first + inner, 0] = straight
                marginals[b, first + inner, 1] = inverted
                mass[i, i + 1 + inner] += straight + inverted
                mass[k, i + 1 + inner] += straight + inverted


@compiled
def rule_marginals_backward(b, grad, rules, marginals, lengths, splits_at, grad_rules):
    """From narrow to wide: an option's adjoint is its own plus its two children's, times the span's mass."""
    length = lengths[b]
    adjoint = np.zeros((length + 1, length + 1), rules.dtype)  # of a span's mass; [i, k], mirrored [k, i]
    mass = np.zeros((length + 1, length + 1), rules.dtype)
    mass[0, length] = 1
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            k = i + width
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                used = marginals[b, first + inner, 0] + marginals[b, first + inner, 1]
                mass[i, i + 1 + inner] += used
                mass[k, i + 1 + inner] += used
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            k = i + width
            first = splits_at[width] + i * (width - 1)
            reached, total = mass[i, k] + mass[k, i], rules.dtype.type(0)
            for inner in range(width - 1):
                children = adjoint[i, i + 1 + inner] + adjoint[k, i + 1 + inner]
                for rule in range(2):
                    passed = grad[b, first + inner, rule] + children
                    grad_rules[b, first + inner, rule] = reached * passed
                    total += rules[b, first + inner, rule] * passed
            adjoint[i, k] = total
            adjoint[k, i] = total


# --- Charts with output positions


@inlined
def row_at(chart_at, words, width, i):
    """Where the positions of the span (i, i + width) begin in a positioned chart."""
    return chart_at[width] + i * (words - width + 1)


@inlined
def child_rows(chart, chart_at, words, i, left_width, right_width, positions):
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
def expected_matrix(b, rules, lengths, splits_at, chart_at, matrix, chart):
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
def expected_matrix_backward(b, grad, rules, chart, lengths, splits_at, chart_at, grad_rules):
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
def tagging_inside(b, scores, emissions, lengths, splits_at, chart_at, log_sum, chart):
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
def tagging_inside_backward(
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


# --- Walks


@compiled
def choose(options, forbidden, uniform):
    """The option of a span, numbered 2 (j - i - 1) + rule: the heaviest if ``uniform`` < 0, else drawn by it."""
    count = 2 * options.shape[0]
    best, best_weight, last = -1, -np.inf, -1
    for option in range(count):
        if option % 2 == forbidden:
            continue
        last = option
        weight = options[option // 2, option % 2]
        if weight > best_weight or best < 0:
            best, best_weight = option, weight
    if uniform < 0:
        return best
    total = 0.0
    for option in range(count):
        if option % 2 != forbidden:
            total += exp(options[option // 2, option % 2] - best_weight)
    reached = 0.0
    for option in range(count):
        if option % 2 != forbidden:
            reached += exp(options[option // 2, option % 2] - best_weight)
            if reached > uniform * total:
                return option
    return last


@compiled
def walk(b, weights, lengths, splits_at, uniforms, normal_form, nodes, orders):
    """All walks in sentence b: ``uniforms`` (samples, batch, n - 1), negative for the heaviest option."""
    length = lengths[b]
    stack = np.empty((length + 1, 4), np.int64)  # start, end, position, forbidden rule
    for sample in range(uniforms.shape[0]):
        depth, step = 0, 0
        if length > 1:
            stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, length, 0, -1
            depth = 1
        while depth > 0:
            depth -= 1
            start, end, position, forbidden = stack[depth]
            width = end - start
            first = splits_at[width] + start * (width - 1)
            option = choose(weights[b, first : first + width - 1], forbidden, uniforms[sample, b, step])
            rule, middle = option % 2, start + option // 2 + 1
            node = nodes[sample, b, step]
            node[0], node[1], node[2], node[3] = start, middle, end, rule
            step += 1
            left_position = position if rule == 0 else position + end - middle
            right_position = position + middle - start if rule == 0 else position
            if end - middle == 1:
                orders[sample, b, right_position] = middle
            else:
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = middle, end, right_position
                stack[depth, 3] = -1
                depth += 1
            if middle - start == 1:
                orders[sample, b, left_position] = start
            else:
                stack[depth, 0], stack[depth, 1], stack[depth, 2] = start, middle, left_position
                stack[depth, 3] = rule if normal_form else -1
                depth += 1
