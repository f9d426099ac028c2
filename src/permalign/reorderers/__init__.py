"""What turns a sentence's states into an order of its words."""

from permalign.reorderers.base import Reorderer, Reordering
from permalign.reorderers.identity import IdentityReorderer
from permalign.reorderers.labelled import LabelledReorderer
from permalign.reorderers.local import LocalReorderer
from permalign.reorderers.separable import SeparableReorderer
from permalign.reorderers.sinkhorn import SinkhornReorderer
from permalign.reorderers.split_scorer import SplitScorer

__all__ = [
    "IdentityReorderer",
    "LabelledReorderer",
    "LocalReorderer",
    "Reorderer",
    "Reordering",
    "SeparableReorderer",
    "SinkhornReorderer",
    "SplitScorer",
]
