"""The sum over reorderings and alignments without its improbable cells: upper bounds on cells, and the pruned sum.

`bound_cells` relaxes the likelihood, so that it takes O(n^2 m^2 L): tokens may be used in any order, and any number of
times. `inside` and `inside_backward` then visit only the cells that may still be probable. They need no logarithms: the
scales of tokens and of output fenceposts that make the relaxed bounds tight also keep the cells within [0, 1].

Names: ``rows`` is (batch, spans, m + 1, 2): the cells (p, q) of a span that are kept, for each p the first q and one
past the last. A *flat* index stands for a segment's start and size, ``start * (L + 1) + size``. The others are those of
`permalign.kernels.compiled.synchronous`.
"""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.compiled.synchronous import band, children
from permalign.kernels.layout import LANES
from permalign.kernels.numerics import LARGEST_SHARE, LEAST_USE, LOG_ZERO, SCALING_STEPS


@compiled
def write_odds(segments, length, target_length, odds, token_scales, output_scales):
    """Divide what tokens write by the scales of a best relaxed output; return whether there is any output.

    A token's first scale is its largest weight. The scale of a fencepost q is the largest relaxed weight of the first q
    output tokens, so that no segment has odds above 1.
    """
    longest = segments.shape[2] - 1
    for token in range(length):
        token_scales[token] = LOG_ZERO
        for p in range(target_length + 1):
            for size in range(min(longest, target_length - p) + 1):
                token_scales[token] = max(token_scales[token], segments[token, p, size])
        if token_scales[token] < LOG_ZERO / 2:
            return False
    output_scales[0] = 0.0
    for q in range(1, target_length + 1):
        best = -np.inf
        for size in range(1, min(longest, q) + 1):
            for token in range(length):
                weight = np.float64(segments[token, q - size, size])
                if weight > LOG_ZERO / 2:
                    best = max(best, output_scales[q - size] + weight - token_scales[token])
        output_scales[q] = best
    for token in range(length):
        for p in range(target_length):
            for size in range(1, min(longest, target_length - p) + 1):
                weight = np.float64(segments[token, p, size])
                if weight > LOG_ZERO / 2 and output_scales[p] > -np.inf:
                    ratio = weight - token_scales[token] + output_scales[p] - output_scales[p + size]
                    odds[token, p * (longest + 1) + size] = exp(ratio)
    return output_scales[target_length] > -np.inf


@compiled
def normalise_prefixes(odds, totals, longest, target_length, output_scales, prefixes, ratios):
    """Scale fenceposts so that all outputs of the tokens before a fencepost have the relaxed sum 1."""
    prefixes[0] = 0.0
    for q in range(1, target_length + 1):
        prefixes[q], top, total = -np.inf, -np.inf, 0.0
        for size in range(1, min(longest, q) + 1):
            top = max(top, prefixes[q - size])
        for size in range(1, min(longest, q) + 1):
            if prefixes[q - size] > -np.inf:
                total += exp(prefixes[q - size] - top) * totals[(q - size) * (longest + 1) + size]
        if total > 0.0:
            prefixes[q] = top + log(total)
        output_scales[q] += prefixes[q]
    ratios[:] = 0.0
    for p in range(target_length):
        for size in range(1, min(longest, target_length - p) + 1):
            if prefixes[p] > -np.inf and prefixes[p + size] > -np.inf:
                ratios[p * (longest + 1) + size] = exp(prefixes[p] - prefixes[p + size])
    for token in range(odds.shape[0]):
        for flat in range(len(ratios)):
            odds[token, flat] *= ratios[flat]
    for flat in range(len(ratios)):
        totals[flat] *= ratios[flat]


@compiled
def sum_prefixes(odds, longest, target_length, answer):
    """Write the relaxed sum of all outputs of the tokens before each fencepost."""
    answer[0] = 1.0
    for q in range(1, target_length + 1):
        total = 0.0
        for size in range(1, min(longest, q) + 1):
            total += answer[q - size] * odds[(q - size) * (longest + 1) + size]
        answer[q] = total


@compiled
def sum_suffixes(odds, longest, target_length, answer):
    """Write the relaxed sum of all outputs of the tokens from each fencepost on."""
    answer[target_length] = 1.0
    for p in range(target_length - 1, -1, -1):
        total = 0.0
        for size in range(1, min(longest, target_length - p) + 1):
            total += odds[p * (longest + 1) + size] * answer[p + size]
        answer[p] = total


@compiled
def relax(segments, length, target_length, odds, empty, token_scales, output_scales):
    """Write scaled odds of segments, and scales for which the relaxed likelihood is low; return whether it is not 0.

    Tokens that are used more than once on average get a larger scale, and those that are used less a smaller one, but
    not below the weight of writing nothing; fenceposts are scaled in turn. Sinkhorn's algorithm does the same to the
    rows and columns of a matrix.
    """
    longest = segments.shape[2] - 1
    if not write_odds(segments, length, target_length, odds, token_scales, output_scales):
        return False
    for token in range(length):
        weight = np.float64(segments[token, 0, 0])
        for p in range(1, target_length + 1):
            weight = max(weight, segments[token, p, 0])
        empty[token] = exp(weight - token_scales[token])
    totals, ratios, through = np.zeros((3, odds.shape[1]))
    prefixes, suffixes = np.empty((2, target_length + 1))
    for step in range(SCALING_STEPS + 1):
        totals[:] = 0.0
        for token in range(length):
            for flat in range(len(totals)):
                totals[flat] += odds[token, flat]
        normalise_prefixes(odds, totals, longest, target_length, output_scales, prefixes, ratios)
        if step == SCALING_STEPS:
            return True
        sum_suffixes(totals, longest, target_length, suffixes)
        for p in range(target_length):
            for size in range(1, min(longest, target_length - p) + 1):
                through[p * (longest + 1) + size] = suffixes[p + size]
        for token in range(length):
            use = 0.0  # how often the token is used, on average
            for flat in range(len(totals)):
                use += odds[token, flat] * through[flat]
            scale = max(use, empty[token], LEAST_USE)
            token_scales[token] += log(scale)
            empty[token] /= scale
            for flat in range(len(totals)):
                odds[token, flat] /= scale
    return True


@inlined
def constituent(marginals, first_split, width):
    """How probable a span is in a tree before any output is seen."""
    total = 0.0
    for inner in range(width - 1):
        total += marginals[first_split + inner, 0] + marginals[first_split + inner, 1]
    return total


@compiled
def keep_all(extent, spans_at, rows):
    """Keep all cells that can be part of a whole derivation."""
    length, target_length, _ = extent
    for width in range(1, length + 1):
        low, high = band(extent, width)
        for span in range(spans_at[width], spans_at[width] + length - width + 1):
            for p in range(target_length + 1 - low):
                rows[span, p, 0], rows[span, p, 1] = p + low, min(target_length, p + high) + 1


@compiled
def bound_cells(
    b,
    marginals,
    segments,
    lengths,
    target_lengths,
    splits_at,
    spans_at,
    threshold,
    token_scales,
    output_scales,
    rows,
    pruned,
):
    """Keep the cells whose relaxed posterior is not below the threshold; bound the probability of all the others.

    The tokens inside of a span write p..q-1 and those outside the rest, so the weight of all derivations with the cell
    (i,k,p,q) is at most

        mu(i,k) * outside(0,p) * inside(p,q) * outside(q,m)

    with mu(i,k) the probability of the span a priori, and three relaxed sums, in which tokens may be used in any order
    and any number of times. All are relative to the relaxed likelihood, which bounds the likelihood itself. No cell of
    a span has more mass than mu(i,k), nor have they together, as a derivation has only one of them.
    """
    length, target_length, longest = lengths[b], target_lengths[b], segments.shape[3] - 1
    extent = (length, target_length, longest)
    odds = np.zeros((length, (target_length + 1) * (longest + 1)))
    empty = np.empty(length)
    if not relax(segments[b], length, target_length, odds, empty, token_scales[b], output_scales[b]):
        token_scales[b, :] = 0.0
        output_scales[b, :] = 0.0
        output_scales[b, target_length] = LOG_ZERO
        return
    nothing = np.empty((length, target_length + 1))
    for token in range(length):
        for p in range(target_length + 1):
            nothing[token, p] = exp(np.float64(segments[b, token, p, 0]) - token_scales[b, token])
    # the odds of all tokens before, and of all tokens from each source fencepost on; and of writing nothing
    before, after = np.zeros((2, length + 1, odds.shape[1]))
    empty_before, empty_after = np.ones((2, length + 1))
    for token in range(length):
        before[token + 1] = before[token] + odds[token]
        empty_before[token + 1] = empty_before[token] * empty[token]
    for token in range(length - 1, -1, -1):
        after[token] = after[token + 1] + odds[token]
        empty_after[token] = empty_after[token + 1] * empty[token]
    inside, outside = np.empty((2, odds.shape[1]))
    prefixes, suffixes, nothing_inside, sums, bounds = np.empty((5, target_length + 1))
    cells = kept = 0
    for i in range(length):
        inside[:] = 0.0
        nothing_inside[:] = 1.0
        for k in range(i + 1, length + 1):
            inside += odds[k - 1]
            nothing_inside *= nothing[k - 1]
            width = k - i
            span = spans_at[width] + i
            low, high = band(extent, width)
            for size in range(low, high + 1):
                cells += target_length + 1 - size
            prior = 1.0
            if 1 < width < length:
                prior = constituent(marginals[b], splits_at[width] + i * (width - 1), width)
            if prior < threshold:
                pruned[b] += prior
                continue
            for flat in range(len(outside)):
                outside[flat] = before[i, flat] + after[k, flat]
            sum_prefixes(outside, longest, target_length, prefixes)
            sum_suffixes(outside, longest, target_length, suffixes)
            lost = 0.0
            for p in range(target_length + 1 - low):
                mass, last = prior * prefixes[p], min(target_length, p + high)
                if mass < threshold:  # the two other factors are at most 1
                    for q in range(p + low, last + 1):
                        lost += mass * suffixes[q]
                    continue
                sums[p] = 1.0
                for q in range(p + 1, last + 1):
                    total = 0.0
                    for size in range(1, min(longest, q - p) + 1):
                        total += sums[q - size] * inside[(q - size) * (longest + 1) + size]
                    sums[q] = total
                if width == 1:
                    for q in range(p + 1, last + 1):
                        sums[q] = odds[i, p * (longest + 1) + q - p]
                sums[p] = nothing_inside[p]
                start, end = target_length + 1, 0
                for q in range(p + low, last + 1):
                    bounds[q] = mass * sums[q] * suffixes[q]
                    if p == 0 and q == target_length:
                        bounds[q] = prior * sums[q] * empty_before[i] * empty_after[k]
                    if bounds[q] >= threshold:
                        start, end = min(start, q), q + 1
                for q in range(p + low, last + 1):
                    if q < start or q >= end:
                        lost += bounds[q]
                if end > start:
                    rows[b, span, p, 0], rows[b, span, p, 1] = start, end
                    kept += end - start
            pruned[b] += min(prior, lost)
    if kept > LARGEST_SHARE * cells:
        keep_all(extent, spans_at, rows[b])
        pruned[b] = 0.0


@compiled
def inside(
    b,
    rules,
    segments,
    token_scales,
    output_scales,
    rows,
    lengths,
    target_lengths,
    splits_at,
    spans_at,
    log_sum,
    chart,
):
    """The sum over all derivations of an output that have only kept cells.

    ``rules`` are probabilities, not logarithms, and cells are divided by the scales of their tokens and of their two
    fenceposts. So they are sums of products:

        C(i,i+1,p,q) = exp(segment(i, p, q - p) - token_scale(i) - output_scale(q) + output_scale(p))
        C(i,k,p,q) = sum over j and r of { G_S(i,j,k) C(i,j,p,r) C(j,k,r,q) + G_I(i,j,k) C(j,k,p,r) C(i,j,r,q) }

    Kept rows are short. Loops over their cells would mostly wait for mispredicted branches, so four cells (p, q..q+3)
    are computed at a time. The chart has room for the last ones, and is zero where no cell is kept.
    """
    length, target_length = lengths[b], target_lengths[b]
    cells = chart[b]
    for token in range(length):
        for p in range(target_length + 1):
            for q in range(rows[b, token, p, 0], rows[b, token, p, 1]):
                scale = token_scales[b, token] + output_scales[b, q] - output_scales[b, p]
                cells[token, p, q] = exp(segments[b, token, p, q - p] - scale)
    for width in range(2, length + 1):
        for i in range(length - width + 1):
            span = spans_at[width] + i
            first_split = splits_at[width] + i * (width - 1)
            for p in range(target_length + 1):
                end = rows[b, span, p, 1]
                for q in range(rows[b, span, p, 0], end, LANES):
                    total0 = total1 = total2 = total3 = 0.0
                    for inner in range(width - 1):
                        for rule in range(2):
                            first, _, second, _ = children(spans_at, i, width, inner, rule)
                            sum0 = sum1 = sum2 = sum3 = 0.0
                            for r in range(rows[b, first, p, 0], min(q + LANES, rows[b, first, p, 1])):
                                weight = cells[first, p, r]
                                sum0 += weight * cells[second, r, q]
                                sum1 += weight * cells[second, r, q + 1]
                                sum2 += weight * cells[second, r, q + 2]
                                sum3 += weight * cells[second, r, q + 3]
                            rule_weight = rules[b, first_split + inner, rule]
                            total0 += rule_weight * sum0
                            total1 += rule_weight * sum1
                            total2 += rule_weight * sum2
                            total3 += rule_weight * sum3
                    cells[span, p, q] = total0
                    cells[span, p, q + 1] = total1 if q + 1 < end else 0.0
                    cells[span, p, q + 2] = total2 if q + 2 < end else 0.0
                    cells[span, p, q + 3] = total3 if q + 3 < end else 0.0
    total = cells[spans_at[length], 0, target_length]
    log_sum[b] = LOG_ZERO
    if total > 0.0:
        log_sum[b] = log(total) + output_scales[b, target_length]
        for token in range(length):
            log_sum[b] += token_scales[b, token]


@compiled
def inside_backward(
    b,
    grad,
    rules,
    chart,
    rows,
    lengths,
    target_lengths,
    splits_at,
    spans_at,
    grad_rules,
    grad_segments,
):
    """The adjoints of the rules (as probabilities) and of the segments (as logarithms); from wide to narrow.

    A term is the product of a rule and two cells, and each of the three receives the cell's adjoint times the other
    two. Adjoints of cells that are not kept are never read.
    """
    length, target_length = lengths[b], target_lengths[b]
    cells, root = chart[b], spans_at[length]
    if grad[b] == 0.0 or cells[root, 0, target_length] == 0.0:
        return
    adjoint = np.zeros(cells.shape)
    adjoint[root, 0, target_length] = grad[b] / cells[root, 0, target_length]
    for width in range(length, 1, -1):
        for i in range(length - width + 1):
            span = spans_at[width] + i
            first_split = splits_at[width] + i * (width - 1)
            for p in range(target_length + 1):
                end = rows[b, span, p, 1]
                for q in range(rows[b, span, p, 0], end, LANES):
                    grad0 = adjoint[span, p, q]
                    grad1 = adjoint[span, p, q + 1] if q + 1 < end else 0.0
                    grad2 = adjoint[span, p, q + 2] if q + 2 < end else 0.0
                    grad3 = adjoint[span, p, q + 3] if q + 3 < end else 0.0
                    for inner in range(width - 1):
                        for rule in range(2):
                            first, _, second, _ = children(spans_at, i, width, inner, rule)
                            rule_weight = rules[b, first_split + inner, rule]
                            share = 0.0  # what the rule receives from these cells
                            for r in range(rows[b, first, p, 0], min(q + LANES, rows[b, first, p, 1])):
                                through = (
                                    grad0 * cells[second, r, q]
                                    + grad1 * cells[second, r, q + 1]
                                    + grad2 * cells[second, r, q + 2]
                                    + grad3 * cells[second, r, q + 3]
                                )
                                share += cells[first, p, r] * through
                                adjoint[first, p, r] += rule_weight * through
                                weight = rule_weight * cells[first, p, r]
                                adjoint[second, r, q] += weight * grad0
                                adjoint[second, r, q + 1] += weight * grad1
                                adjoint[second, r, q + 2] += weight * grad2
                                adjoint[second, r, q + 3] += weight * grad3
                            grad_rules[b, first_split + inner, rule] += share
    for token in range(length):
        for p in range(target_length + 1):
            for q in range(rows[b, token, p, 0], rows[b, token, p, 1]):
                grad_segments[b, token, p, q - p] = adjoint[token, p, q] * cells[token, p, q]
