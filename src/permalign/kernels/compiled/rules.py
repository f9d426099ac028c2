"""Inside sums, rule probabilities and rule marginals: O(n^3)."""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled


@compiled
def inside(b, scores, lengths, splits_at, maximise, log_partition, gamma):  # type: ignore[no-untyped-def]
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
def inside_backward(b, grad_partition, grad_gamma, gamma, lengths, splits_at, grad_scores):  # type: ignore[no-untyped-def]
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
def span_softmax(b, logits, lengths, splits_at, rules):  # type: ignore[no-untyped-def]
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
def span_softmax_backward(b, grad, rules, lengths, splits_at, grad_logits):  # type: ignore[no-untyped-def]
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
def span_one_hot(b, weights, lengths, splits_at, one_hot):  # type: ignore[no-untyped-def]
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
def rule_marginals(b, rules, lengths, splits_at, marginals):  # type: ignore[no-untyped-def]
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
def rule_marginals_backward(b, grad, rules, marginals, lengths, splits_at, grad_rules):  # type: ignore[no-untyped-def]
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
