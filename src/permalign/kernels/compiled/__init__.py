"""The recurrences as loops over one sentence, compiled by Numba; `permalign.kernels.operators` calls them from torch.

Each function takes the index of a sentence and the arrays of the whole batch, and writes into arrays it is given.
The functions release the interpreter's lock, so that `permalign.kernels.threads` can run one sentence per thread.
`permalign.kernels.portable` computes the same in plain torch.

Names that all loops share:

- ``b`` is the index of the sentence, ``length`` its length, ``max_length`` the length that the arrays have room for;
- ``i``, ``k`` are the ends of a span and ``inner`` numbers its split points from zero: ``j = i + 1 + inner``;
- ``scores``, ``gamma`` and ``rules`` are (batch, T, 2), packed, and ``splits_at[w]`` is where width w begins in them;
- ``chart`` is (batch, P): for each width a square of (i, output position), beginning at ``chart_at[w]``;
- the ``adjoint`` of a quantity is the derivative of the loss with respect to it; formulas call that of x ``x_bar``.

A backward loop visits the cells in the opposite order of its forward loop: the adjoint of a cell is complete only after
all cells that were computed from it have been visited.
"""
