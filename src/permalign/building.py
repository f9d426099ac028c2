"""Building a model's parts from its options: the one place that knows which class an option's name stands for."""

from typing import Any

from torch import nn

from permalign.config import EncoderOptions, HeadOptions, ReordererOptions
from permalign.encoders import make_encoder
from permalign.heads import AttentionHead, SsntHead, SwanHead, SyntacticAttentionHead, TaggingHead
from permalign.heads.base import Head
from permalign.reorderers import (
    IdentityReorderer,
    LocalReorderer,
    SeparableReorderer,
    SinkhornReorderer,
)
from permalign.reorderers.base import Reorderer


def build_encoder(options: EncoderOptions, input_width: int) -> nn.Module | None:
    """The encoder over states of a width; None passes them through."""
    if options.kind == "none":
        return None
    return make_encoder(
        options.kind, input_width, options.width, options.layers, options.attention_heads, options.dropout
    )


def build_reorderer(
    options: ReordererOptions, words: int, head_width: int, head_embeddings: nn.Embedding
) -> Reorderer:
    """The reorderer of a head that reads states of a width."""
    if options.kind == "none":
        return IdentityReorderer()
    if options.kind == "local":
        return LocalReorderer(head_width, options.reach)
    common: dict[str, Any] = {
        "words": words,
        "embedding": options.embedding,
        "embeddings": head_embeddings if options.shared_embeddings else None,
        "encoder": options.encoder,
        "width": options.width,
        "layers": options.layers,
        "attention_heads": options.attention_heads,
        "dropout": options.dropout,
        "temperature": options.temperature,
    }
    if options.kind == "sinkhorn":
        return SinkhornReorderer(iterations=options.iterations, hungarian=options.hungarian, **common)
    return SeparableReorderer(
        hidden=options.hidden,
        objective=options.objective,
        samples=options.samples,
        decoding=options.decoding,
        normal_form=options.normal_form,
        inversion_rate=options.inversion_rate,
        inversion_weight=options.inversion_weight,
        **common,
    )


def build_head(options: HeadOptions, words: int) -> Head:
    """The head over source states of its embedding's width, writing words of a vocabulary."""
    encoder = build_encoder(options.encoder, options.embedding)
    common: dict[str, Any] = {
        "width": options.embedding,
        "words": words,
        "dropout": options.dropout,
        "encoder": encoder,
    }
    if options.kind == "tagging":
        return TaggingHead(**common)
    common |= {"hidden": options.hidden, "layers": options.layers}
    if options.kind == "syntactic_attention":
        return SyntacticAttentionHead(**common)
    common |= {"embedding": options.embedding}
    if options.kind == "attention":
        return AttentionHead(**common)
    common |= {"context": options.context}
    if options.kind == "swan":
        return SwanHead(longest_segment=options.longest_segment, **common)
    return SsntHead(**common)
