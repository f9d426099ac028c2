"""From charts over source spans and output spans to derivations: one choice per span met on the way down."""

from math import exp

import numpy as np

from permalign.kernels.compiled.compiler import compiled
from permalign.kernels.compiled.synchronous import band, children, exact_cell, is_leaf

LEAF = 2  # in place of a rule: the span is a phrase, and has no parts


@compiled
def choose_option(options, cells, spans_at, i, width, length, words, longest, p, q, leaf, uniform, answer):
    """A term (inner, rule, r) of one cell, or its span as a leaf: the heaviest if ``uniform`` < 0, else drawn by it."""
    highest = exact_cell(options, cells, spans_at, i, width, length, words, longest, p, q, True)
    highest = max(highest, leaf)
    answer[0], answer[1], answer[2] = 0, LEAF, p
    reached, best, total = exp(leaf - highest), leaf, 0.0
    if uniform >= 0:
        parts = exact_cell(options, cells, spans_at, i, width, length, words, longest, p, q, False)
        total = uniform * (exp(parts - highest) + reached)
        if reached > total:
            return
    for inner in range(width - 1):
        for rule in range(2):
            first, first_width, second, second_width = children(spans_at, i, width, inner, rule)
            score = np.float64(options[inner, rule])
            low, high = band(length, words, longest, first_width)
            second_low, second_high = band(length, words, longest, second_width)
            for r in range(max(p + low, q - second_high), min(p + high, q - second_low) + 1):
                value = score + cells[first, p, r] + cells[second, r, q]
                if uniform < 0:
                    if value > best:
                        best = value
                        answer[0], answer[1], answer[2] = inner, rule, r
                    continue
                part = exp(value - highest)
                if part > 0 or (answer[1] == LEAF and leaf == -np.inf):  # of what cannot be, the first
                    answer[0], answer[1], answer[2] = inner, rule, r
                    reached += part
                    if reached > total:
                        return


@compiled
def synchronous_walk(
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
    """Derivations from the root down: ``uniforms`` (samples, batch, n - 1), negative for the heaviest term."""
    length, words, longest = lengths[b], target_lengths[b], segments.shape[3] - 1
    if words > length * longest:
        return
    cells = chart[b]
    stack = np.empty((length + 1, 5), np.int64)  # start, end, position, first word, end of words
    answer = np.zeros(3, np.int64)
    for sample in range(uniforms.shape[0]):
        stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3], stack[0, 4] = 0, length, 0, 0, words
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
                choose_option(
                    options,
                    cells,
                    spans_at,
                    start,
                    width,
                    length,
                    words,
                    longest,
                    p,
                    q,
                    leaf,
                    uniform,
                    answer,
                )
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
