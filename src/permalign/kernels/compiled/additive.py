"""The sums of an additive softmax, in one pass over the logits, block by block of the vocabulary."""

import numpy as np

from permalign.kernels.compiled.compiler import compiled
from permalign.kernels.compiled.exponential import exponential

BLOCK = 512
"""The number of tokens whose exponentials are multiplied while they are in the cache."""


@compiled
def exponential_products(b, cells, steps, products, cell_tops, step_tops):
    """products(i,j) = sum_w P(i,w) Q(j,w), with P and Q the exponentials that overwrite the logits."""
    num_cells, vocab_size = cells[b].shape
    num_steps = steps.shape[1]
    sums = np.zeros((num_cells + 1, num_steps + 3), cells.dtype)
    for i in range(num_cells):
        cell_tops[b, i, 0] = largest(cells[b, i])
    for j in range(num_steps):
        step_tops[b, j, 0] = largest(steps[b, j])
    for first in range(0, vocab_size, BLOCK):
        last = min(first + BLOCK, vocab_size)
        for i in range(num_cells):
            exponentials(cells[b, i, first:last], cell_tops[b, i, 0])
        for j in range(num_steps):
            exponentials(steps[b, j, first:last], step_tops[b, j, 0])
        add_products(cells[b], steps[b], first, last, sums)
    products[b] = sums[:num_cells, :num_steps]


@compiled
def largest(logits):
    """The largest entry of a row."""
    top = logits[0]
    for w in range(logits.shape[0]):
        top = max(top, logits[w])
    return top


@compiled
def exponentials(logits, top):
    """Overwrite a row by exp(logits - top)."""
    for w in range(logits.shape[0]):
        logits[w] = exponential(logits[w] - top)


@compiled
def add_products(left, right, first, last, sums):
    """Add the products of all rows of two matrices, between two columns, to ``sums``.

    Two rows and four rows at a time, so that each entry is read from memory for several products. Beyond the last rows,
    the last one stands for what is missing; its sums are written to where nobody reads them.
    """
    zero = sums.dtype.type(0)
    for i in range(0, left.shape[0], 2):
        a, b = left[i, first:last], left[min(i + 1, left.shape[0] - 1), first:last]
        for j in range(0, right.shape[0], 4):
            end = right.shape[0] - 1
            c, d = right[j, first:last], right[min(j + 1, end), first:last]
            e, f = right[min(j + 2, end), first:last], right[min(j + 3, end), first:last]
            ac, ad, ae, af, bc, bd, be, bf = zero, zero, zero, zero, zero, zero, zero, zero
            for w in range(last - first):
                ac += a[w] * c[w]
                ad += a[w] * d[w]
                ae += a[w] * e[w]
                af += a[w] * f[w]
                bc += b[w] * c[w]
                bd += b[w] * d[w]
                be += b[w] * e[w]
                bf += b[w] * f[w]
            sums[i, j] += ac
            sums[i, j + 1] += ad
            sums[i, j + 2] += ae
            sums[i, j + 3] += af
            sums[i + 1, j] += bc
            sums[i + 1, j + 1] += bd
            sums[i + 1, j + 2] += be
            sums[i + 1, j + 3] += bf
