"""Separable permutations: inside sums, rule probabilities, expected positions, the tagging likelihood, walks."""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined

# --- Inside sums, rule probabilities and rule marginals -------------------------------------------------------


@compiled
def inside(b, scores, lengths, splits_at, maximise, log_partition, gamma):
    """Weights of all options (j, R) of every span, and the log-partition; with ``maximise``, of the best derivations.

    gamma(i,j,k,R) = score(i,j,k,R) + beta(i,j) + beta(j,k)
    beta(i,k) = logsumexp (or the maximum) over j and R of gamma(i,j,k,R),   beta(i,i+1) = 0
    """
    length = lengths[b]
    # A split reads beta(i, j) for all j, and beta(j, k) for all j. The mirrored copy makes both of them rows.
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
    """The adjoint of the scores, given those of the log-partition and of gamma (``grad_gamma``).

    With G = exp(gamma(i,j,k,R) - beta(i,k)), the softmax over a span's options:

        score_bar(i,j,k,R) = grad_gamma(i,j,k,R) + beta_bar(i,k) * G(i,j,k,R)
        beta_bar(i,j) += score_bar(i,j,k,R)        beta_bar(j,k) += score_bar(i,j,k,R)

    because gamma is the sum of the score and of both children's beta. Wide spans come first: beta_bar of a span is
    complete when all wider spans that contain it are done. The forward pass does not store beta, so G is computed again
    as the softmax of gamma.
    """
    length = lengths[b]
    # adjoints of beta: [i, k] collects what comes to the span as a left child, [k, i] as a right child
    adjoint = np.zeros((length + 1, length + 1), gamma.dtype)
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
            # until the last loop over the options, grad_scores holds exp(gamma - best), the numerators of G
            normaliser = zero
            for inner in range(width - 1):
                for rule in range(2):
                    weight = exp(gamma[b, first + inner, rule] - best)
                    grad_scores[b, first + inner, rule] = weight
                    normaliser += weight
            span /= normaliser  # from here on, span * grad_scores is beta_bar(i,k) * G
            for inner in range(width - 1):
                straight = grad_gamma[b, first + inner, 0] + span * grad_scores[b, first + inner, 0]
                inverted = grad_gamma[b, first + inner, 1] + span * grad_scores[b, first + inner, 1]
                grad_scores[b, first + inner, 0] = straight
                grad_scores[b, first + inner, 1] = inverted
                adjoint[i, i + 1 + inner] += straight + inverted
                adjoint[k, i + 1 + inner] += straight + inverted


@compiled
def span_softmax(b, logits, lengths, splits_at, rules):
    """Normalise over the 2 (w - 1) options of every span of width w."""
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
    """The adjoint of a softmax, span by span: G * (grad - sum of grad * G over the span's options)."""
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
    """One at the heaviest option of every span, at the first of them where several are equal."""
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
    """How probable it is that a derivation uses each option; from wide spans to narrow ones.

    mass(0,n) = 1
    marginal(i,j,k,R) = G(i,j,k,R) * mass(i,k),   which is added to mass(i,j) and to mass(j,k)
    """
    length = lengths[b]
    mass = np.zeros((length + 1, length + 1), rules.dtype)  # [i, k] as a left child, [k, i] as a right child
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
    """The adjoint of the rules G.

    The masses of children are sums of marginals, and marginal = G * mass(i,k), so

        passed(i,j,k,R) = grad(i,j,k,R) + mass_bar(i,j) + mass_bar(j,k)
        G_bar(i,j,k,R) = mass(i,k) * passed
        mass_bar(i,k) = sum over j and R of G * passed

    The forward loop goes from wide spans to narrow ones, so adjoints flow from narrow to wide.
    """
    length = lengths[b]
    adjoint = np.zeros((length + 1, length + 1), rules.dtype)  # of a span's mass; [i, k], mirrored [k, i]
    # first sweep: the masses of all spans, which the forward pass does not store, from the marginals, which it does
    mass = np.zeros((length + 1, length + 1), rules.dtype)
    mass[0, length] = 1
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            k = i + width
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                of_split = marginals[b, first + inner, 0] + marginals[b, first + inner, 1]
                mass[i, i + 1 + inner] += of_split
                mass[k, i + 1 + inner] += of_split
    # second sweep: the adjoints
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


# --- Charts with output positions -----------------------------------------------------------------------------


@inlined
def row_at(chart_at, max_length, width, i):
    """Where the output positions of the span (i, i + width) begin in a chart."""
    return chart_at[width] + i * (max_length - width + 1)


@inlined
def child_rows(chart, chart_at, max_length, i, left_width, right_width, positions):
    """Four views of the children's rows, in which index p belongs to a parent whose output starts at p.

    In the order returned: the left child at p (straight rule) and at p + right_width (inverted rule, where it comes
    second); the right child at p (inverted rule) and at p + left_width (straight rule). The views of a child that
    comes second are called ``late``.
    """
    left_at = row_at(chart_at, max_length, left_width, i)
    right_at = row_at(chart_at, max_length, right_width, i + left_width)
    return (
        chart[left_at : left_at + positions],
        chart[left_at + right_width : left_at + right_width + positions],
        chart[right_at : right_at + positions],
        chart[right_at + left_width : right_at + left_width + positions],
    )


@compiled
def expected_matrix(b, rules, lengths, splits_at, chart_at, matrix, chart):
    """The expected permutation matrix, from mu(i,k,p): the probability that (i,k) is a constituent that starts at p.

        S:  mu(i,j,p)     += G_S mu(i,k,p)      mu(j,k,p+j-i) += G_S mu(i,k,p)
        I:  mu(i,j,p+k-j) += G_I mu(i,k,p)      mu(j,k,p)     += G_I mu(i,k,p)

    ``chart`` holds mu and must be zero at first; ``matrix`` is E[M], [position, token], with
    E[M](p, t) = mu(t, t+1, p). O(n^4).
    """
    length, max_length = lengths[b], matrix.shape[1]
    zero = rules.dtype.type(0)
    mu = chart[b]
    mu[row_at(chart_at, max_length, length, 0)] = 1
    for width in range(length, 1, -1):
        positions = length - width + 1
        for i in range(length - width + 1):
            at = row_at(chart_at, max_length, width, i)
            parent = mu[at : at + positions]
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                straight, inverted = rules[b, first + inner, 0], rules[b, first + inner, 1]
                if straight == zero and inverted == zero:
                    continue
                left, left_late, right, right_late = child_rows(
                    mu, chart_at, max_length, i, inner + 1, width - inner - 1, positions
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
        at = row_at(chart_at, max_length, 1, token)
        for p in range(length):
            matrix[b, p, token] = mu[at + p]
    for token in range(length, max_length):
        matrix[b, token, token] = 1


@compiled
def expected_matrix_backward(b, grad, rules, chart, lengths, splits_at, chart_at, grad_rules):
    """The adjoint of the rules: the forward loop in reverse, from narrow to wide, with mu_bar in place of mu.

    in_order(p) = mu_bar(i,j,p) + mu_bar(j,k,p+j-i)        the two cells to which a straight rule sends mass
    swapped(p)  = mu_bar(j,k,p) + mu_bar(i,j,p+k-j)        the two cells to which an inverted rule sends mass

    mu_bar(i,k,p) = sum over j of G_S * in_order(p) + G_I * swapped(p)
    G_S_bar = sum over p of mu(i,k,p) * in_order(p),   G_I_bar = sum over p of mu(i,k,p) * swapped(p)
    """
    length, max_length = lengths[b], grad.shape[1]
    mu, adjoint = chart[b], np.empty_like(chart[b])
    for token in range(length):
        at = row_at(chart_at, max_length, 1, token)
        for p in range(length):
            adjoint[at + p] = grad[b, p, token]
    for width in range(2, length + 1):
        positions = length - width + 1
        for i in range(length - width + 1):
            at = row_at(chart_at, max_length, width, i)
            parent, total = mu[at : at + positions], adjoint[at : at + positions]
            total[:] = 0
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                straight, inverted = rules[b, first + inner, 0], rules[b, first + inner, 1]
                left, left_late, right, right_late = child_rows(
                    adjoint, chart_at, max_length, i, inner + 1, width - inner - 1, positions
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
    """The sum over all derivations times emissions, from C(i,k,p): the sum for (i,k) with its output starting at p.

    C(i,i+1,p) = emission(i, p)
    C(i,k,p) = logsumexp_j { score_S + C(i,j,p) + C(j,k,p+j-i),  score_I + C(j,k,p) + C(i,j,p+k-j) }

    Two passes over the split points: the first finds each position's largest term, the second sums exponentials.
    """
    length, max_length = lengths[b], emissions.shape[1]
    inner_chart = chart[b]
    highest, total = np.empty(length, scores.dtype), np.empty(length, scores.dtype)
    for token in range(length):
        at = row_at(chart_at, max_length, 1, token)
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
                    inner_chart, chart_at, max_length, i, inner + 1, width - inner - 1, positions
                )
                for p in range(positions):
                    in_order = straight + left[p] + right_late[p]
                    swapped = inverted + right[p] + left_late[p]
                    highest[p] = max(highest[p], max(in_order, swapped))
            for inner in range(width - 1):
                straight, inverted = scores[b, first + inner, 0], scores[b, first + inner, 1]
                left, left_late, right, right_late = child_rows(
                    inner_chart, chart_at, max_length, i, inner + 1, width - inner - 1, positions
                )
                for p in range(positions):
                    total[p] += exp(straight + left[p] + right_late[p] - highest[p])
                    total[p] += exp(inverted + right[p] + left_late[p] - highest[p])
            at = row_at(chart_at, max_length, width, i)
            for p in range(positions):
                inner_chart[at + p] = highest[p] + log(total[p])
    log_sum[b] = inner_chart[row_at(chart_at, max_length, length, 0)]


@compiled
def tagging_inside_backward(
    b, grad, scores, chart, lengths, splits_at, chart_at, grad_scores, grad_emissions
):
    """The adjoints of the scores and of the emissions; from wide to narrow.

    C(i,k,p) is the logsumexp of its terms, so every term has the adjoint C_bar(i,k,p) * exp(term - C(i,k,p)). A term is
    a sum of one score and two children's cells, and each of the three receives it in full. The adjoints of the cells of
    width one are those of the emissions.
    """
    length, max_length = lengths[b], grad_emissions.shape[1]
    inner_chart, adjoint = chart[b], np.zeros_like(chart[b])
    zero = scores.dtype.type(0)
    adjoint[row_at(chart_at, max_length, length, 0)] = grad[b]
    for width in range(length, 1, -1):
        positions = length - width + 1
        for i in range(length - width + 1):
            at = row_at(chart_at, max_length, width, i)
            cell, cell_adjoint = inner_chart[at : at + positions], adjoint[at : at + positions]
            first = splits_at[width] + i * (width - 1)
            for inner in range(width - 1):
                straight, inverted = scores[b, first + inner, 0], scores[b, first + inner, 1]
                left, left_late, right, right_late = child_rows(
                    inner_chart, chart_at, max_length, i, inner + 1, width - inner - 1, positions
                )
                to_left, to_left_late, to_right, to_right_late = child_rows(
                    adjoint, chart_at, max_length, i, inner + 1, width - inner - 1, positions
                )
                sum_straight, sum_inverted = zero, zero
                # the adjoints of the terms of this split, at every position, are passed on to both children
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
        at = row_at(chart_at, max_length, 1, token)
        for p in range(length):
            grad_emissions[b, token, p] = adjoint[at + p]


# --- Walks from the root down ---------------------------------------------------------------------------------


@compiled
def choose(options, forbidden, uniform):
    """The option of a span, numbered 2 (j - i - 1) + rule: the heaviest, or one drawn by a uniform number.

    Args:
        options: (split points, 2), the log-weights of the span's options.
        forbidden: the rule that may not be chosen, or -1.
        uniform: in [0, 1); negative to choose the heaviest.
    """
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
    """Derivations of sentence b, chosen from the root down, one option at every span met.

    ``uniforms`` is (samples, batch, n - 1); negative numbers choose the heaviest option. Nodes come in pre-order: the
    left child is pushed last, so it is visited first.
    """
    length = lengths[b]
    stack = np.empty((length + 1, 4), np.int64)  # start, end, output position, forbidden rule
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
