"""The recurrences in plain torch: on any device, and differentiable any number of times.

They are vectorised over all spans of one width. Every chart is kept in two copies, one indexed by a span's left end and
its width, one by its right end and its width, so that all splits of all spans of one width are slices: with
``m = n - w + 1`` spans of width ``w``, their left children are ``left[:, :m, 1:w]`` and their right children are
``right[:, w:, 1:w]`` read backwards. Charts with output positions have two copies of each of these, one indexed by the
position where a constituent starts and one by the position where it ends: under a straight rule the left child starts,
and the right child ends, where the parent does; under an inverted rule it is the other way round. A sentence of ``n``
tokens takes O(n) torch operations.

`permalign.kernels.operators` computes the same on CPU tensors with compiled loops.
"""

from permalign.kernels.portable import (
    factorised,
    labelled,
    labelled_synchronous,
    monotone,
    pruned_synchronous,
    scoring,
    separable,
    synchronous,
)

__all__ = [
    "factorised",
    "labelled",
    "labelled_synchronous",
    "monotone",
    "pruned_synchronous",
    "scoring",
    "separable",
    "synchronous",
]
