"""What turns a sentence's states into an order of its words."""

from permalign.reorderers.split_scorer import SplitScorer

__all__ = ["SplitScorer"]
