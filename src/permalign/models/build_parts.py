"""Building a model's parts from its options: the one place that knows which class an option's name stands for."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from permalign.encoders import BiLstmEncoder, Encoder, PrefixSumEncoder, TransformerEncoder, WindowEncoder
from permalign.encoders.huggingface import ContextualEmbeddings, HuggingFaceEncoder
from permalign.errors import ConfigError
from permalign.heads import (
    AttentionHead,
    SegmentsHead,
    SsntHead,
    SwanHead,
    SyntacticAttentionHead,
    TaggingHead,
)
from permalign.heads.base import Head
from permalign.options.model import EncoderOptions, HeadOptions, ModelOptions, ReordererOptions
from permalign.reorderers import (
    IdentityReorderer,
    InversionPrior,
    LabelGrammar,
    LabelledReorderer,
    LocalReorderer,
    SeparableReorderer,
    SinkhornReorderer,
    SourceEncoder,
)
from permalign.reorderers.base import Reorderer
from permalign.text.codec import Codec
from permalign.text.vocabulary import Vocabulary

Embeddings = nn.Embedding | ContextualEmbeddings
"""Maps the token ids of the source to vectors."""


def build_embeddings(
    options: ModelOptions, source: Codec, pretrained: Mapping[str, HuggingFaceEncoder] | None = None
) -> dict[str, Embeddings]:
    """Build the embeddings of the ``head``, and those of the ``reorderer`` if it has a pretrained model of its own.

    Args:
        options: the model's options.
        source: the vocabulary of the source.
        pretrained: models that are loaded already, by part; others are loaded by the name in the options.
    """
    embeddings: dict[str, Embeddings] = {}
    for part, name in (("head", options.head.pretrained), ("reorderer", options.reorderer.pretrained)):
        if name is None:
            continue
        if not isinstance(source, Vocabulary):
            raise ConfigError(
                f"{part}.pretrained is {name}, which reads whole words, but the source is {type(source).__name__}. "
                f"Use a word vocabulary for the source, or leave {part}.pretrained out."
            )
        encoder = pretrained[part] if pretrained and part in pretrained else _load_encoder(part, name)
        embeddings[part] = ContextualEmbeddings(encoder, source.tokens)
    if "head" not in embeddings:
        embeddings["head"] = nn.Embedding(len(source), options.head.embedding_dim)
    return embeddings


def _load_encoder(part: str, name: str) -> HuggingFaceEncoder:
    try:
        # The precision of all other parameters, whatever precision the model was saved in.
        return HuggingFaceEncoder.from_pretrained(name).float()
    except ValueError as error:
        raise ConfigError(f"{part}.pretrained is {name}, which cannot be used: {error}") from error


def build_encoder(options: EncoderOptions, input_size: int) -> Encoder | None:
    """Build an encoder over embeddings of a size; None for the kind that passes them through."""
    sizes = input_size, options.hidden_size
    if options.kind == "bilstm":
        return BiLstmEncoder(*sizes, options.num_layers, options.dropout)
    if options.kind == "transformer":
        return TransformerEncoder(*sizes, options.num_layers, options.num_heads, options.dropout)
    if options.kind == "prefix_sum":
        return PrefixSumEncoder(*sizes, options.num_sums, options.dropout)
    if options.kind == "window":
        return WindowEncoder(*sizes, options.window_radius, options.dropout)
    return None


def build_reorderer(
    options: ReordererOptions, vocab_size: int, embeddings: Mapping[str, Embeddings]
) -> Reorderer:
    """Build a reorderer.

    Args:
        options: the reorderer's options.
        vocab_size: the size of the source vocabulary.
        embeddings: the embeddings that `build_embeddings` made.
    """
    if options.kind == "none":
        return IdentityReorderer()
    if options.kind == "local":
        return LocalReorderer(embeddings["head"].embedding_dim, options.window_radius)
    given = embeddings["head"] if options.shared_embeddings else embeddings.get("reorderer")
    if options.kind == "sinkhorn":
        return SinkhornReorderer(
            _build_source_encoder(options, vocab_size, given),
            num_iterations=options.num_iterations,
            temperature=options.temperature,
            hungarian=options.hungarian,
        )
    common: dict[str, Any] = {
        "dropout": options.dropout,
        "objective": options.objective,
        "decoding": options.decoding,
        "temperature": options.temperature,
        "num_samples": options.num_samples,
        "inversion_prior": None
        if options.inversion_rate is None
        else InversionPrior(options.inversion_rate, options.inversion_weight),
    }
    if options.kind == "separable":
        return SeparableReorderer(
            _build_source_encoder(options, vocab_size, given),
            scorer_hidden_size=options.scorer_hidden_size,
            score_straight_rules=options.score_straight_rules,
            normal_form=options.normal_form,
            **common,
        )
    # The grammar's scores are drawn before the encoder's weights: with another order, seeds would give other models.
    return LabelledReorderer(
        LabelGrammar(options.num_labels, options.label_init_std),
        vocab_size=vocab_size,
        source_encoder=_build_source_encoder(options, vocab_size, given) if options.uses_encoder else None,
        features=options.features,
        embeddings=given,
        scorer_hidden_size=options.scorer_hidden_size if options.split_scores else None,
        **common,
    )


def _build_source_encoder(
    options: ReordererOptions, vocab_size: int, embeddings: Embeddings | None
) -> SourceEncoder:
    """Build what a reorderer reads the source with, over given embeddings or new ones."""
    if embeddings is None:
        embeddings = nn.Embedding(vocab_size, options.embedding_dim)
    source_encoder = SourceEncoder(embeddings, build_encoder(options.encoder, embeddings.embedding_dim))
    scores_splits = options.kind == "separable" or (options.kind == "labelled" and options.split_scores)
    if scores_splits and source_encoder.hidden_size % 2:
        raise ConfigError(
            f"reorderer.encoder.kind is none and the pretrained model has states of size {source_encoder.hidden_size}, "
            "but scores of splits need an even size. Choose reorderer.encoder.kind: bilstm or transformer."
        )
    return source_encoder


def build_head(options: HeadOptions, vocab_size: int, input_size: int, encoder: nn.Module | None) -> Head:
    """Build a head.

    Args:
        options: the head's options.
        vocab_size: the size of the output vocabulary.
        input_size: the size of the source states.
        encoder: the encoder that reads the reordered states; None if the head reads them as they are.
    """
    common: dict[str, Any] = {
        "input_size": input_size,
        "vocab_size": vocab_size,
        "dropout": options.dropout,
        "num_negatives": options.num_negatives,
        "encoder": encoder,
    }
    if options.kind == "tagging":
        return TaggingHead(**common)
    common |= {"hidden_size": options.hidden_size, "num_layers": options.num_layers}
    if options.kind == "syntactic_attention":
        return SyntacticAttentionHead(**common)
    common |= {"embedding_dim": options.embedding_dim}
    if options.kind == "attention":
        return AttentionHead(**common)
    common |= {"context": options.context}
    if options.kind == "ssnt":
        return SsntHead(**common)
    common |= {"max_segment_length": options.max_segment_length}
    if options.kind == "swan":
        return SwanHead(**common)
    return SegmentsHead(history=options.history, max_phrase_length=options.max_phrase_length, **common)
