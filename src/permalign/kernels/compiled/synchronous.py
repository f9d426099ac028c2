"""Charts over source spans and output spans: the exact sum over reorderings and alignments, O(n^3 m^3).

A chart cell C(i,k,p,q) is the log-weight of all derivations of the source span (i,k) that write the output tokens
p..q-1. With segments of at most L tokens, a span of w source tokens writes at most w L output tokens and the rest of
the sentence at most (n - w) L, so only cells with ``m - (n - w) L <= q - p <= w L`` can be part of a whole derivation:
a band of the square (p, q).

For one source span the cells are a triangular matrix, and a rule is a product of two such matrices. Products are
computed from exponentials: the rows of the first factor and the columns of the second are divided by their largest
entries (kept as logarithms, ``row_tops`` and ``column_tops``), and all splits of a span share one scale for each row
and each column. Where such a sum comes close to underflow (a row and a column that prefer different fenceposts r), that
one cell is summed again in logarithms. So the result is exact whatever the scores, and a cell costs one logarithm and
two exponentials. Charts are in double precision.

Names: ``chart`` is (batch, spans, m + 1, m + 1), spans packed by width, beginning at ``spans_at[w]``; ``segments`` is
(batch, leaf, start, size). Leaves are spans, too: the tokens, and where phrases are allowed, the spans of two tokens
and so on, in the same order, so that a leaf has the index of its span. In a rule, ``first`` is the child whose output
comes first and ``second`` the other one; ``r`` is the output fencepost between the two. ``extent`` is (n, m, L): the
sentence's length, its output's length, and the length of the longest segment.
"""

from math import exp, log

import numpy as np

from permalign.kernels.compiled.compiler import compiled, inlined
from permalign.kernels.layout import LEAF
from permalign.kernels.numerics import LOG_ZERO

LEAST = 1e-184  # terms that underflow are lost; a sum larger than this does not miss them
LOG_LEAST = log(LEAST)


@inlined
def band(extent, width):
    """The fewest and the most output tokens that a span of a width can write in a whole derivation."""
    length, target_length, max_segment_length = extent
    fewest = max(0, target_length - (length - width) * max_segment_length)
    return fewest, min(target_length, width * max_segment_length)


@compiled
def fill_leaves(segments, length, target_length, cells):
    """C(i,i+1,p,q) = segment(i, p, q - p)."""
    low, high = band((length, target_length, segments.shape[2] - 1), 1)
    for token in range(length):
        for p in range(target_length + 1 - low):
            for size in range(low, min(high, target_length - p) + 1):
                cells[token, p, p + size] = segments[token, p, size]


@inlined
def is_leaf(segments, span, size):
    """Whether a span is a leaf that may write ``size`` output tokens."""
    return span < segments.shape[0] and size < segments.shape[2]


@inlined
def add_leaf(segments, span, p, q, maximise, cell):
    """The cell's log-weight with that of its span as a leaf added (or the larger of the two), if it can be a leaf."""
    if not is_leaf(segments, span, q - p):
        return cell
    leaf = np.float64(segments[span, p, q - p])
    high, low = max(cell, leaf), min(cell, leaf)
    if maximise or low < high + LOG_LEAST:
        return high
    return high + log(1.0 + exp(low - high))


@compiled
def scale(cell, target_length, low, high, by_row, by_column, row_tops, column_tops):
    """Write exponentials of a span's cells, once divided by each row's largest and once by each column's largest."""
    for p in range(target_length + 1):
        row_tops[p] = -np.inf
        column_tops[p] = -np.inf
    for p in range(target_length + 1 - low):
        for q in range(p + low, min(target_length, p + high) + 1):
            row_tops[p] = max(row_tops[p], cell[p, q])
            column_tops[q] = max(column_tops[q], cell[p, q])
    for p in range(target_length + 1 - low):
        for q in range(p + low, min(target_length, p + high) + 1):
            by_row[p, q] = exp(cell[p, q] - row_tops[p])
            by_column[p, q] = exp(cell[p, q] - column_tops[q])


@inlined
def children(spans_at, i, width, inner, rule):
    """The child that comes first in the output and its width, then the second child and its width."""
    left_width = inner + 1
    right_width = width - left_width
    left, right = spans_at[left_width] + i, spans_at[right_width] + i + left_width
    if rule == 0:
        return left, left_width, right, right_width
    return right, right_width, left, left_width


@compiled
def common_scales(options, spans_at, i, width, row_tops, column_tops, target_length, row_scale, column_scale):
    """Write the largest scale of every row and every column over all options (split and rule) of a span."""
    for p in range(target_length + 1):
        row_scale[p] = -np.inf
        column_scale[p] = -np.inf
    for inner in range(width - 1):
        for rule in range(2):
            first, _, second, _ = children(spans_at, i, width, inner, rule)
            score = np.float64(options[inner, rule])
            for p in range(target_length + 1):
                row_scale[p] = max(row_scale[p], score + row_tops[first, p])
                column_scale[p] = max(column_scale[p], column_tops[second, p])


@compiled
def factors(score, tops, scales, target_length, answer):
    """Write each row's (or column's) own scale divided by the common one; zero where a row has no possible cell."""
    for p in range(target_length + 1):
        answer[p] = 0.0 if tops[p] < LOG_ZERO / 2 else exp(score + tops[p] - scales[p])


@compiled
def exact_cell(options, cells, spans_at, i, width, extent, p, q, maximise):
    """One cell in logarithms: the sum, or the largest, over all splits, rules and r; LOG_ZERO if there are none."""
    best = -np.inf
    for inner in range(width - 1):
        for rule in range(2):
            first, first_width, second, second_width = children(spans_at, i, width, inner, rule)
            score = np.float64(options[inner, rule])
            low, high = band(extent, first_width)
            second_low, second_high = band(extent, second_width)
            for r in range(max(p + low, q - second_high), min(p + high, q - second_low) + 1):
                best = max(best, score + cells[first, p, r] + cells[second, r, q])
    if best < LOG_ZERO / 2:
        return LOG_ZERO
    if maximise:
        return best
    total = 0.0
    for inner in range(width - 1):
        for rule in range(2):
            first, first_width, second, second_width = children(spans_at, i, width, inner, rule)
            score = np.float64(options[inner, rule])
            low, high = band(extent, first_width)
            second_low, second_high = band(extent, second_width)
            for r in range(max(p + low, q - second_high), min(p + high, q - second_low) + 1):
                total += exp(score + cells[first, p, r] + cells[second, r, q] - best)
    return best + log(total)


@compiled
def inside(b, scores, segments, lengths, target_lengths, splits_at, spans_at, maximise, log_sum, chart):
    """The sum over all derivations of an output (or the best of them).

    C(i,i+1,p,q) = segment(i, p, q - p)
    C(i,k,p,q) = logsumexp over j and r of { score_S + C(i,j,p,r) + C(j,k,r,q),
                                             score_I + C(j,k,p,r) + C(i,j,r,q) }

    and of ``segment(span, p, q - p)`` as well, where the span is a leaf. With ``maximise``, the maximum replaces the
    sum.
    """
    length, target_length, max_segment_length = lengths[b], target_lengths[b], segments.shape[3] - 1
    extent = (length, target_length, max_segment_length)
    if target_length > length * max_segment_length:
        log_sum[b] = LOG_ZERO
        return
    cells = chart[b]
    square = (cells.shape[0], target_length + 1, target_length + 1)
    by_row, by_column = np.empty(square), np.empty(square)
    row_tops, column_tops = np.empty(square[:2]), np.empty(square[:2])
    row_scale, column_scale, row_factor, column_factor, sums = np.empty((5, target_length + 1))
    total = np.empty((target_length + 1, target_length + 1))
    fill_leaves(segments[b], length, target_length, cells)
    for width in range(1, length + 1):
        low, high = band(extent, width)
        for i in range(length - width + 1):
            span = spans_at[width] + i
            first_split = splits_at[width] + i * (width - 1)
            options = scores[b, first_split : first_split + width - 1]
            if width > 1 and maximise:
                for p in range(target_length + 1 - low):
                    for q in range(p + low, min(target_length, p + high) + 1):
                        best = exact_cell(options, cells, spans_at, i, width, extent, p, q, True)
                        cells[span, p, q] = add_leaf(segments[b], span, p, q, True, best)
            elif width > 1:
                common_scales(
                    options, spans_at, i, width, row_tops, column_tops, target_length, row_scale, column_scale
                )
                # total[p, q]: the sum over all splits, rules and r of exponentials, in the common scales
                total[:] = 0.0
                for inner in range(width - 1):
                    for rule in range(2):
                        first, first_width, second, second_width = children(spans_at, i, width, inner, rule)
                        factors(options[inner, rule], row_tops[first], row_scale, target_length, row_factor)
                        factors(0.0, column_tops[second], column_scale, target_length, column_factor)
                        first_low, first_high = band(extent, first_width)
                        second_low, second_high = band(extent, second_width)
                        for p in range(target_length + 1 - low):
                            if row_factor[p] == 0.0:
                                continue
                            start, end = p + low, min(target_length, p + high) + 1
                            # sums[q]: row p of the product of the two children's matrices
                            for q in range(start, end):
                                sums[q] = 0.0
                            for r in range(p + first_low, min(target_length, p + first_high) + 1):
                                weight = by_row[first, p, r]
                                for q in range(max(r + second_low, start), min(r + second_high + 1, end)):
                                    sums[q] += weight * by_column[second, r, q]
                            for q in range(start, end):
                                total[p, q] += row_factor[p] * column_factor[q] * sums[q]
                for p in range(target_length + 1 - low):
                    for q in range(p + low, min(target_length, p + high) + 1):
                        if total[p, q] >= LEAST:
                            cell = row_scale[p] + column_scale[q] + log(total[p, q])
                        else:
                            cell = exact_cell(options, cells, spans_at, i, width, extent, p, q, False)
                        cells[span, p, q] = add_leaf(segments[b], span, p, q, False, cell)
            if not maximise:
                scale(
                    cells[span],
                    target_length,
                    low,
                    high,
                    by_row[span],
                    by_column[span],
                    row_tops[span],
                    column_tops[span],
                )
    log_sum[b] = cells[spans_at[length], 0, target_length]


@compiled
def exact_shares(options, cells, adjoint, spans_at, i, width, extent, p, q, grad, grad_options):
    """Pass one cell's adjoint on to its children, term by term in logarithms; see `inside_backward`."""
    total = cells[spans_at[width] + i, p, q]
    for inner in range(width - 1):
        for rule in range(2):
            first, first_width, second, second_width = children(spans_at, i, width, inner, rule)
            score = np.float64(options[inner, rule])
            low, high = band(extent, first_width)
            second_low, second_high = band(extent, second_width)
            for r in range(max(p + low, q - second_high), min(p + high, q - second_low) + 1):
                share = grad * exp(score + cells[first, p, r] + cells[second, r, q] - total)
                adjoint[first, p, r] += share
                adjoint[second, r, q] += share
                grad_options[inner, rule] += share


@compiled
def inside_backward(
    b, grad, scores, segments, chart, lengths, target_lengths, splits_at, spans_at, grad_scores, grad_segments
):
    """The adjoints of the scores and of the segments; from wide to narrow.

    C(i,k,p,q) is the logsumexp of its terms, so every term has the adjoint C_bar(i,k,p,q) * exp(term - C(i,k,p,q)). A
    term is the sum of a score and two cells, C(first,p,r) and C(second,r,q), and each of the three receives it in full.

    The exponential of a term factorises as in the forward pass:

        exp(term) = row_factor[p] * by_row(first,p,r) * by_column(second,r,q) * column_factor[q]   (common scales apart)

    so C_bar / exp(C), in these scales, is computed once for each cell (``weights``), and the innermost loop has no
    exponentials. Where the scaled sum is close to underflow, a cell's adjoint is passed on in logarithms instead
    (`exact_shares`), and its ``weights`` are zero.
    """
    length, target_length, max_segment_length = lengths[b], target_lengths[b], segments.shape[3] - 1
    extent = (length, target_length, max_segment_length)
    if target_length > length * max_segment_length or grad[b] == 0.0:
        return
    cells = chart[b]
    square = (cells.shape[0], target_length + 1, target_length + 1)
    by_row, by_column = np.empty(square), np.empty(square)
    row_tops, column_tops = np.empty(square[:2]), np.empty(square[:2])
    adjoint = np.zeros(square)
    row_scale, column_scale, row_factor, column_factor, scaled = np.empty((5, target_length + 1))
    weights = np.empty((target_length + 1, target_length + 1))
    # the scaled exponentials of all cells, which the forward pass does not keep
    for width in range(1, length):
        low, high = band(extent, width)
        for i in range(length - width + 1):
            span = spans_at[width] + i
            scale(
                cells[span],
                target_length,
                low,
                high,
                by_row[span],
                by_column[span],
                row_tops[span],
                column_tops[span],
            )
    adjoint[spans_at[length], 0, target_length] = grad[b]
    for width in range(length, 1, -1):
        low, high = band(extent, width)
        for i in range(length - width + 1):
            span = spans_at[width] + i
            first_split = splits_at[width] + i * (width - 1)
            options = scores[b, first_split : first_split + width - 1]
            grad_options = np.zeros((width - 1, 2))
            common_scales(
                options, spans_at, i, width, row_tops, column_tops, target_length, row_scale, column_scale
            )
            # what the span receives as a leaf, and the weights C_bar / exp(C) for its splits
            for p in range(target_length + 1 - low):
                for q in range(p + low, min(target_length, p + high) + 1):
                    weights[p, q] = 0.0
                    if adjoint[span, p, q] == 0.0:
                        continue
                    if is_leaf(segments[b], span, q - p):
                        leaf = np.float64(segments[b, span, p, q - p])
                        share = adjoint[span, p, q] * exp(leaf - cells[span, p, q])
                        grad_segments[b, span, p, q - p] = share
                    log_total = cells[span, p, q] - row_scale[p] - column_scale[q]
                    if log_total >= LOG_LEAST:
                        weights[p, q] = adjoint[span, p, q] / exp(log_total)
                    else:
                        cell_adjoint = adjoint[span, p, q]
                        exact_shares(
                            options,
                            cells,
                            adjoint,
                            spans_at,
                            i,
                            width,
                            extent,
                            p,
                            q,
                            cell_adjoint,
                            grad_options,
                        )
            # the adjoint of every term (p, r, q) of every split and rule, added to both children and to the score
            for inner in range(width - 1):
                for rule in range(2):
                    first, first_width, second, second_width = children(spans_at, i, width, inner, rule)
                    factors(options[inner, rule], row_tops[first], row_scale, target_length, row_factor)
                    factors(0.0, column_tops[second], column_scale, target_length, column_factor)
                    first_low, first_high = band(extent, first_width)
                    second_low, second_high = band(extent, second_width)
                    share = 0.0  # the sum of the adjoints of all terms of this split and rule
                    for p in range(target_length + 1 - low):
                        if row_factor[p] == 0.0:
                            continue
                        start, end = p + low, min(target_length, p + high) + 1
                        for q in range(start, end):
                            scaled[q] = weights[p, q] * row_factor[p] * column_factor[q]
                        for r in range(p + first_low, min(target_length, p + first_high) + 1):
                            weight, through = by_row[first, p, r], 0.0  # through: the terms with this p and r
                            for q in range(max(r + second_low, start), min(r + second_high + 1, end)):
                                term = weight * scaled[q] * by_column[second, r, q]
                                adjoint[second, r, q] += term
                                through += term
                            adjoint[first, p, r] += through
                            share += through
                    grad_options[inner, rule] += share
            for inner in range(width - 1):
                grad_scores[b, first_split + inner, 0] = grad_options[inner, 0]
                grad_scores[b, first_split + inner, 1] = grad_options[inner, 1]
    low, high = band(extent, 1)
    for token in range(length):
        for p in range(target_length + 1 - low):
            for size in range(low, min(high, target_length - p) + 1):
                grad_segments[b, token, p, size] = adjoint[token, p, p + size]


# --- Walks from the root down ---------------------------------------------------------------------------------


@compiled
def choose_option(options, cells, spans_at, i, width, extent, p, q, leaf, uniform, answer):
    """Choose a term (inner, rule, r) of one cell, or its span as a leaf, and write it into ``answer``.

    The heaviest is chosen if ``uniform`` is negative; otherwise it is drawn by this number in [0, 1).
    """
    highest = exact_cell(options, cells, spans_at, i, width, extent, p, q, True)
    highest = max(highest, leaf)
    answer[0], answer[1], answer[2] = 0, LEAF, p
    reached, best, total = exp(leaf - highest), leaf, 0.0
    if uniform >= 0:
        # an option is chosen as soon as the running sum of weights exceeds this share of their total; the leaf is first
        log_sum = exact_cell(options, cells, spans_at, i, width, extent, p, q, False)
        total = uniform * (exp(log_sum - highest) + reached)
        if reached > total:
            return
    for inner in range(width - 1):
        for rule in range(2):
            first, first_width, second, second_width = children(spans_at, i, width, inner, rule)
            score = np.float64(options[inner, rule])
            low, high = band(extent, first_width)
            second_low, second_high = band(extent, second_width)
            for r in range(max(p + low, q - second_high), min(p + high, q - second_low) + 1):
                value = score + cells[first, p, r] + cells[second, r, q]
                if uniform < 0:
                    if value > best:
                        best = value
                        answer[0], answer[1], answer[2] = inner, rule, r
                    continue
                weight = exp(value - highest)
                # the second condition: where nothing is possible, take the first term
                if weight > 0 or (answer[1] == LEAF and leaf == -np.inf):
                    answer[0], answer[1], answer[2] = inner, rule, r
                    reached += weight
                    if reached > total:
                        return


@compiled
def walk(
    b,
    scores,
    segments,
    chart,
    lengths,
    target_lengths,
    splits_at,
    spans_at,
    uniforms,
    nodes,
    orders,
    sizes,
    widths,
):
    """Derivations of the output, chosen from the root down, one term of a cell at a time.

    ``uniforms`` is (samples, batch, n - 1); negative numbers choose the heaviest term.
    """
    length, target_length, max_segment_length = lengths[b], target_lengths[b], segments.shape[3] - 1
    extent = (length, target_length, max_segment_length)
    if target_length > length * max_segment_length:
        return
    cells = chart[b]
    stack = np.empty((length + 1, 5), np.int64)  # start, end, output position, p, q
    answer = np.zeros(3, np.int64)
    for sample in range(uniforms.shape[0]):
        stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3], stack[0, 4] = 0, length, 0, 0, target_length
        depth, step = 1, 0
        while depth > 0:
            depth -= 1
            start, end, position, p, q = stack[depth]
            width = end - start
            answer[1] = LEAF
            if width > 1:
                first_split = splits_at[width] + start * (width - 1)
                options = scores[b, first_split : first_split + width - 1]
                span, leaf = spans_at[width] + start, -np.inf
                if is_leaf(segments[b], span, q - p):
                    leaf = np.float64(segments[b, span, p, q - p])
                uniform = uniforms[sample, b, step]
                choose_option(options, cells, spans_at, start, width, extent, p, q, leaf, uniform, answer)
                step += 1
            if answer[1] == LEAF:
                for token in range(width):
                    orders[sample, b, position + token] = start + token
                sizes[sample, b, position], widths[sample, b, position] = q - p, width
                continue
            middle, rule, r = start + answer[0] + 1, answer[1], answer[2]
            node = nodes[sample, b, step - 1]
            node[0], node[1], node[2], node[3] = start, middle, end, rule
            left, right = stack[depth + 1], stack[depth]
            left[0], left[1], right[0], right[1] = start, middle, middle, end
            if rule == 0:
                left[2], left[3], left[4] = position, p, r
                right[2], right[3], right[4] = position + middle - start, r, q
            else:
                right[2], right[3], right[4] = position, p, r
                left[2], left[3], left[4] = position + end - middle, r, q
            depth += 2
