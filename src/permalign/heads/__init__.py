"""Heads write an output from (reordered) source states."""

from permalign.heads.attention import AttentionHead
from permalign.heads.base import Decoder, Head
from permalign.heads.segments import SegmentsHead
from permalign.heads.softmax.additive import additive_word_log_probs
from permalign.heads.ssnt import SsntHead
from permalign.heads.swan import SwanHead
from permalign.heads.syntactic_attention import SyntacticAttentionHead
from permalign.heads.tagging import TaggingHead

__all__ = [
    "AttentionHead",
    "Decoder",
    "Head",
    "SegmentsHead",
    "SsntHead",
    "SwanHead",
    "SyntacticAttentionHead",
    "TaggingHead",
    "additive_word_log_probs",
]
