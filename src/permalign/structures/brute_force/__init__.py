"""A slow twin of every structure, by enumeration: the reference that tests compare with, and a definition for readers.

Each class has the methods of the fast class that it checks, on tensors of the same shapes, for a handful of words.
"""

from permalign.structures.brute_force.alignments import (
    EnumeratedMonotoneAlignment,
    EnumeratedSegmentalAlignment,
)
from permalign.structures.brute_force.labelled import EnumeratedLabelledPermutation
from permalign.structures.brute_force.phrases import EnumeratedPhrasePermutation
from permalign.structures.brute_force.separable import EnumeratedPermutation
from permalign.structures.brute_force.synchronous import EnumeratedSynchronousPermutation
from permalign.structures.brute_force.trees import EnumeratedTree, all_trees, packed_splits

__all__ = [
    "EnumeratedLabelledPermutation",
    "EnumeratedMonotoneAlignment",
    "EnumeratedPermutation",
    "EnumeratedPhrasePermutation",
    "EnumeratedSegmentalAlignment",
    "EnumeratedSynchronousPermutation",
    "EnumeratedTree",
    "all_trees",
    "packed_splits",
]
