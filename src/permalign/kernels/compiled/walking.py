"""From weights of options to derivations: one choice per span met on the way down."""

from math import exp

import numpy as np

from permalign.kernels.compiled.compiler import compiled


@compiled
def choose(options, forbidden, uniform):  # type: ignore[no-untyped-def]
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
def walk(b, weights, lengths, splits_at, uniforms, normal_form, nodes, orders):  # type: ignore[no-untyped-def]
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
