"""Reorderers put the words of a source sentence into a new order."""

from permalign.reorderers.base import Reorderer, Reordering
from permalign.reorderers.identity import IdentityReorderer
from permalign.reorderers.inversion_prior import InversionPrior
from permalign.reorderers.labelled import LabelGrammar, LabelledReorderer
from permalign.reorderers.local import LocalReorderer
from permalign.reorderers.separable import SeparableReorderer
from permalign.reorderers.sinkhorn import SinkhornReorderer
from permalign.reorderers.source_encoder import SourceEncoder
from permalign.reorderers.split_scorer import SplitScorer

__all__ = [
    "IdentityReorderer",
    "InversionPrior",
    "LabelGrammar",
    "LabelledReorderer",
    "LocalReorderer",
    "Reorderer",
    "Reordering",
    "SeparableReorderer",
    "SinkhornReorderer",
    "SourceEncoder",
    "SplitScorer",
]
