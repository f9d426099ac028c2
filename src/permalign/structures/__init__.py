"""Exact inference: tensors in, tensors out. Each structure is a noun, each question to it a verb."""

import permalign.structures.divergence  # noqa: F401 (registers itself with torch.distributions)
from permalign.structures.derivations import Derivation, Tree
from permalign.structures.grammar_listing import LearnedGrammar, read_grammar
from permalign.structures.labelled import LabelledPermutation
from permalign.structures.labelled_synchronous import LabelledSynchronousPermutation
from permalign.structures.monotone import BestAlignment, MonotoneAlignment
from permalign.structures.search import ProbableOrder
from permalign.structures.segmental import SegmentalAlignment
from permalign.structures.segments import Segment, bracketed
from permalign.structures.separable import SeparablePermutation
from permalign.structures.synchronous import SynchronousPermutation, Transduction

__all__ = [
    "BestAlignment",
    "Derivation",
    "LabelledPermutation",
    "LabelledSynchronousPermutation",
    "LearnedGrammar",
    "MonotoneAlignment",
    "ProbableOrder",
    "Segment",
    "SegmentalAlignment",
    "SeparablePermutation",
    "SynchronousPermutation",
    "Transduction",
    "Tree",
    "bracketed",
    "read_grammar",
]
