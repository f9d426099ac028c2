"""The compiled loops as torch operators, ``torch.ops.permalign.*``, each with its hand-written backward pass.

Importing this package registers them with ``torch.library``. Each operator has a fake implementation that gives the
shapes of its results, so that ``torch.compile`` and ``torch.export`` can trace programs that call it; backward passes
are operators themselves. Every operator takes ``lengths`` (batch,) and leaves zeros (or the identity) at padding.

`permalign.kernels.portable` documents what each operator computes.
"""

from permalign.kernels.operators import (
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
