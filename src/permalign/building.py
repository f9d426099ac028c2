"""Building a model's parts from its options: the one place that knows which class an option's name stands for."""

from typing import Any

from torch import nn

from permalign.config import EncoderOptions, HeadOptions, ReordererOptions
from permalign.encoders import BiLstmEncoder, TransformerEncoder
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
    if options.kind == "bilstm":
        return BiLstmEncoder(input_width, options.width, options.layers, options.dropout)
    if options.kind == "transformer":
        return TransformerEncoder(
            input_width, options.width, options.layers, options.attention_heads, options.dropout
        )
    return None


def build_reorderer(
    options: ReordererOptions, words: int, head_width: int, head_embeddings: nn.Embedding
) -> Reorderer:
    """The reorderer of a head that reads states of a width."""
    if options.kind == "none":
        return IdentityReorderer()
    if options.kind == "local":
        return LocalReorderer(head_width, options.window)
    embeddings = head_embeddings if options.shared_embeddings else nn.Embedding(words, options.embedding)
    encoder = build_encoder(options.encoder, embeddings.embedding_dim)
    if options.kind == "sinkhorn":
        return SinkhornReorderer(
            embeddings,
            encoder,
            temperature=options.temperature,
            iterations=options.iterations,
            hungarian=options.hungarian,
        )
    return SeparableReorderer(
        embeddings,
        encoder,
        hidden=options.hidden,
        dropout=options.dropout,
        objective=options.objective,
        temperature=options.temperature,
        samples=options.samples,
        decoding=options.decoding,
        normal_form=options.normal_form,
        inversion_rate=options.inversion_rate,
        inversion_weight=options.inversion_weight,
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
    if options.kind == "swan":
        return SwanHead(segment_length=options.segment_length, **common)
    return SsntHead(context=options.context, **common)
