"""Exact inference: tensors in, tensors out. Each structure is a noun, each question to it a verb."""

import permalign.structures.divergence  # noqa: F401 (registers itself with torch.distributions)
from permalign.structures.derivations import Derivation, Tree
from permalign.structures.inspection import (
    derivation_of_order,
    log_prob_of_tree,
    sample_derivations,
    span_options,
)
from permalign.structures.monotone import BestAlignment, MonotoneAlignment
from permalign.structures.search import ProbableOrder
from permalign.structures.segmental import SegmentalAlignment
from permalign.structures.segments import Segment, bracketed
from permalign.structures.separable import SeparablePermutation
from permalign.structures.synchronous import SynchronousPermutation, Transduction
from permalign.structures.tagging_posterior import TaggingPosterior, tagging_posterior

__all__ = [
    "BestAlignment",
    "Derivation",
    "MonotoneAlignment",
    "ProbableOrder",
    "Segment",
    "SegmentalAlignment",
    "SeparablePermutation",
    "SynchronousPermutation",
    "TaggingPosterior",
    "Transduction",
    "Tree",
    "bracketed",
    "derivation_of_order",
    "log_prob_of_tree",
    "sample_derivations",
    "span_options",
    "tagging_posterior",
]
