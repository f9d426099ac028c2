"""Building a model's parts from its options: the one place that knows which class an option's name stands for."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from permalign.config import EncoderOptions, HeadOptions, ModelOptions, ReordererOptions
from permalign.encoders import make_encoder
from permalign.encoders.huggingface import HuggingFaceEncoder, WordsInContext
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
from permalign.reorderers import (
    IdentityReorderer,
    LabelledReorderer,
    LocalReorderer,
    SeparableReorderer,
    SinkhornReorderer,
)
from permalign.reorderers.base import Reorderer
from permalign.text.codec import Codec
from permalign.text.vocabulary import Vocabulary

Words = nn.Embedding | WordsInContext
"""What turns the numbers of source words into vectors."""


def build_words(
    options: ModelOptions, source: Codec, pretrained: Mapping[str, HuggingFaceEncoder] | None = None
) -> dict[str, Words]:
    """What the ``head`` reads, and the ``reorderer`` where a pretrained model reads for it.

    Args:
        options: of the model.
        source: tells which words there are.
        pretrained: the models at hand for either; others are loaded by the name in the options.
    """
    words: dict[str, Words] = {}
    for part, name in (("head", options.head.pretrained), ("reorderer", options.reorderer.pretrained)):
        if name is None:
            continue
        if not isinstance(source, Vocabulary):
            raise ConfigError(
                f"{part}.pretrained is {name}, which reads whole words, but the source is {type(source).__name__}. "
                f"Use a word vocabulary for the source, or leave {part}.pretrained out."
            )
        encoder = pretrained[part] if pretrained and part in pretrained else _load_encoder(part, name)
        words[part] = WordsInContext(encoder, source.tokens)
    if "head" not in words:
        words["head"] = nn.Embedding(len(source), options.head.embedding)
    return words


def _load_encoder(part: str, name: str) -> HuggingFaceEncoder:
    try:
        # In the precision of everything else, whatever the model was saved in.
        return HuggingFaceEncoder.from_pretrained(name).float()
    except ValueError as error:
        raise ConfigError(f"{part}.pretrained is {name}, which cannot be used: {error}") from error


def build_encoder(options: EncoderOptions, input_width: int) -> nn.Module | None:
    """The encoder over states of a width; None passes them through."""
    if options.kind == "none":
        return None
    return make_encoder(
        options.kind,
        input_width,
        options.width,
        options.layers,
        options.attention_heads,
        options.dropout,
        options.sums,
        options.reach,
    )


def build_reorderer(options: ReordererOptions, words: int, read: Mapping[str, Words]) -> Reorderer:
    """The reorderer of source words, read as `build_words` says."""
    if options.kind == "none":
        return IdentityReorderer()
    if options.kind == "local":
        return LocalReorderer(read["head"].embedding_dim, options.reach)
    embeddings = read["head"] if options.shared_embeddings else read.get("reorderer")
    embedding = options.embedding if embeddings is None else embeddings.embedding_dim
    width = embedding if options.encoder == "none" else options.width
    scores_splits = options.kind == "separable" or (options.kind == "labelled" and options.split_scores)
    if scores_splits and options.encoder == "none" and width % 2:
        raise ConfigError(
            f"reorderer.encoder is none and the pretrained model's width {width}, but scores of splits need an even "
            "width. Choose reorderer.encoder: bilstm or transformer."
        )
    common: dict[str, Any] = {
        "words": words,
        "embedding": embedding,
        "embeddings": embeddings,
        "encoder": options.encoder,
        "width": width,
        "layers": options.layers,
        "attention_heads": options.attention_heads,
        "sums": options.sums,
        "dropout": options.dropout,
        "temperature": options.temperature,
    }
    if options.kind == "sinkhorn":
        return SinkhornReorderer(iterations=options.iterations, hungarian=options.hungarian, **common)
    common |= {
        "hidden": options.hidden,
        "objective": options.objective,
        "samples": options.samples,
        "decoding": options.decoding,
        "inversion_rate": options.inversion_rate,
        "inversion_weight": options.inversion_weight,
    }
    if options.kind == "separable":
        return SeparableReorderer(straight=options.straight, normal_form=options.normal_form, **common)
    return LabelledReorderer(
        labels=options.labels,
        features=options.features,
        split_scores=options.split_scores,
        scale=options.label_scale,
        **common,
    )


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
        "encoder": encoder,
    }
    if options.kind == "tagging":
        return TaggingHead(**common)
    common |= {"hidden_size": options.hidden, "num_layers": options.layers}
    if options.kind == "syntactic_attention":
        return SyntacticAttentionHead(**common)
    common |= {"embedding_dim": options.embedding}
    if options.kind == "attention":
        return AttentionHead(**common)
    common |= {"context": options.context}
    if options.kind == "ssnt":
        return SsntHead(**common)
    common |= {"max_segment_length": options.longest_segment}
    if options.kind == "swan":
        return SwanHead(**common)
    return SegmentsHead(history=options.history, max_phrase_length=options.longest_phrase, **common)
