"""The recurrences as loops over one sentence, compiled by Numba; `permalign.kernels.cpu` calls them from torch.

Each function takes the index of a sentence and the arrays of the whole batch, and writes into arrays it is given.
They release the interpreter's lock, so that `permalign.kernels.threads` can run one sentence per thread. The same
mathematics, by width and for any device, is in `permalign.kernels.portable`; the two give the same numbers.

Array names: ``scores``, ``gamma``, ``rules`` are (batch, T, 2), packed; ``splits_at[w]`` is where width w begins
there. ``chart`` is (batch, P), packed squares of (i, position) per width, beginning at ``chart_at[w]``.
"""
