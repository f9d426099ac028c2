"""States of words in context."""

from permalign.encoders.base import Encoder, Unchanged
from permalign.encoders.bilstm import BiLstmEncoder
from permalign.encoders.sums import SummingEncoder
from permalign.encoders.transformer import TransformerEncoder
from permalign.encoders.window import WindowEncoder

__all__ = [
    "KINDS",
    "BiLstmEncoder",
    "Encoder",
    "SummingEncoder",
    "TransformerEncoder",
    "Unchanged",
    "WindowEncoder",
    "make_encoder",
]

KINDS = ("bilstm", "transformer", "sums", "window", "none")


def make_encoder(
    kind: str,
    input_width: int,
    width: int,
    layers: int = 1,
    attention_heads: int = 4,
    dropout: float = 0.0,
    sums: int = 4,
    reach: int = 1,
) -> Encoder:
    """The encoder of a kind: one of `KINDS`; ``none`` is for vectors that have their context already.

    >>> make_encoder("none", 8, 8)
    Unchanged()
    """
    if kind == "bilstm":
        return BiLstmEncoder(input_width, width, layers, dropout)
    if kind == "transformer":
        return TransformerEncoder(input_width, width, layers, attention_heads, dropout)
    if kind == "sums":
        return SummingEncoder(input_width, width, sums, dropout)
    if kind == "window":
        return WindowEncoder(input_width, width, reach, dropout)
    if kind != "none":
        raise ValueError(f"there is no encoder {kind!r}; choose one of {', '.join(KINDS)}.")
    if width != input_width:
        raise ValueError(
            f"width is {width}, but without an encoder states are as wide as the words' vectors, {input_width}. "
            f"Pass width={input_width}, or choose bilstm or transformer."
        )
    return Unchanged(width)
