"""Building a model's parts from its options: each part is looked up by its kind, and built with what it asks for."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any

from torch import nn

from permalign.encoders import Encoder
from permalign.encoders.huggingface import ContextualEmbeddings, HuggingFaceEncoder
from permalign.errors import ConfigError
from permalign.heads.base import Head
from permalign.options.base import PartOptions
from permalign.options.model import EncoderOptions, HeadOptions, ModelOptions, ReordererOptions
from permalign.reorderers import InversionPrior, LabelGrammar, SourceEncoder
from permalign.reorderers.base import Reorderer
from permalign.text.codec import Codec
from permalign.text.entities import EntityVocabulary
from permalign.text.vocabulary import Vocabulary

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)

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
        if not isinstance(source, Vocabulary | EntityVocabulary):
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
    encoder: Encoder | None = _build(options, {"input_size": lambda: input_size})
    return encoder


def build_reorderer(
    options: ReordererOptions, vocab_size: int, embeddings: Mapping[str, Embeddings]
) -> Reorderer:
    """Build a reorderer.

    Args:
        options: the reorderer's options.
        vocab_size: the size of the source vocabulary.
        embeddings: the embeddings that `build_embeddings` made.
    """
    given = embeddings["head"] if options.shared_embeddings else embeddings.get("reorderer")
    scores_splits = options.kind != "labelled" or options.split_scores
    reads_context = options.kind != "labelled" or options.uses_encoder
    arguments: dict[str, Callable[[], Any]] = {
        "vocab_size": lambda: vocab_size,
        "input_size": lambda: embeddings["head"].embedding_dim,
        "embeddings": lambda: given,
        "source_encoder": lambda: (
            _build_source_encoder(options, vocab_size, given) if reads_context else None
        ),
        "scorer_hidden_size": lambda: options.scorer_hidden_size if scores_splits else None,
        "grammar": lambda: LabelGrammar(options.num_labels, options.label_init_std, options.factorised_rules),
        "inversion_prior": lambda: (
            None
            if options.inversion_rate is None
            else InversionPrior(options.inversion_rate, options.inversion_weight)
        ),
    }
    reorderer: Reorderer = _build(options, arguments)
    return reorderer


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
            f"reorderer.encoder.kind is {options.encoder.kind}, and the source has states of size "
            f"{source_encoder.hidden_size}, but scores of splits need an even size. Choose reorderer.encoder.kind: "
            "bilstm or transformer."
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
    arguments: dict[str, Callable[[], Any]] = {
        "vocab_size": lambda: vocab_size,
        "input_size": lambda: input_size,
        "encoder": lambda: encoder,
    }
    head: Head = _build(options, arguments)
    return head


def _build(options: PartOptions, arguments: Mapping[str, Callable[[], Any]]) -> Any:
    """Build the part that the options name, with the arguments that its ``__init__`` names.

    An argument is one of those given here, made only if it is asked for, or else the option of that name. They are made
    in the order of the parameters: with another order, random initial weights would be others.

    Args:
        options: the options of the part.
        arguments: functions that make what is not an option, by the names of arguments.
    """
    part = options.registry.load(options.kind)
    values: dict[str, Any] = {}
    for name, parameter in signature(part).parameters.items():
        if name in arguments:
            values[name] = arguments[name]()
        elif name in type(options).model_fields:
            values[name] = getattr(options, name)
        elif parameter.default is parameter.empty and parameter.kind not in VARIADIC:
            raise ConfigError(
                f"the {options.registry.noun} {options.kind!r} has a parameter {name!r}, which is neither an option of "
                f"it nor one of {', '.join(arguments)}. Declare the option in its class Options, or give the parameter "
                "a default."
            )
    return part(**values)
