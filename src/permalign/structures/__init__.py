"""Exact inference over latent structures: distributions over orders, derivations and alignments."""

from permalign.structures.aligned_segments import Segment, bracketed
from permalign.structures.derivations import Derivation, Tree
from permalign.structures.distribution import OrderDistribution
from permalign.structures.factorised import FactorisedLabelledPermutation
from permalign.structures.kbest import ProbableOrder
from permalign.structures.labelled import LabelledPermutation
from permalign.structures.labelled_synchronous import LabelledSynchronousPermutation
from permalign.structures.learned_grammar import LearnedGrammar, read_grammar
from permalign.structures.monotone import BestAlignment, MonotoneAlignment
from permalign.structures.segmental import SegmentalAlignment
from permalign.structures.separable import SeparablePermutation
from permalign.structures.synchronous import PrunedLikelihood, SynchronousPermutation, Transduction

__all__ = [
    "BestAlignment",
    "Derivation",
    "FactorisedLabelledPermutation",
    "LabelledPermutation",
    "LabelledSynchronousPermutation",
    "LearnedGrammar",
    "MonotoneAlignment",
    "OrderDistribution",
    "ProbableOrder",
    "PrunedLikelihood",
    "Segment",
    "SegmentalAlignment",
    "SeparablePermutation",
    "SynchronousPermutation",
    "Transduction",
    "Tree",
    "bracketed",
    "read_grammar",
]
