"""Encoders put the embeddings of words into context."""

from permalign.encoders.base import Encoder, no_encoder
from permalign.encoders.bilstm import BiLstmEncoder
from permalign.encoders.prefix_sum import PrefixSumEncoder
from permalign.encoders.transformer import TransformerEncoder
from permalign.encoders.window import WindowEncoder

__all__ = [
    "BiLstmEncoder",
    "Encoder",
    "PrefixSumEncoder",
    "TransformerEncoder",
    "WindowEncoder",
    "no_encoder",
]
