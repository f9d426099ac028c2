"""Make the tokenizers that options describe, and choose tokens that suit the user's own data."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from permalign.options.run import SideOptions
from permalign.tasks.base import Example
from permalign.text.tokenizers import (
    CharacterTokenizer,
    HuggingFaceTokenizer,
    PunctuationTokenizer,
    Tokenizer,
    WhitespaceTokenizer,
)

CANDIDATES: dict[str, dict[str, Any]] = {
    "words": {},
    "words split at punctuation": {"pre_tokenizer": "punctuation"},
    "words split at punctuation and digits": {"pre_tokenizer": "digits"},
    "characters": {"kind": "characters"},
}
"""The tokens that are tried, from coarse to fine, and the options of each."""

MAX_RARE = {"source": 0.25, "target": 0.1}
"""The share of sentences that may have a token which occurs in no other sentence: such a token cannot be learned."""

MAX_CHARACTERS = 40
"""The mean number of characters of a sentence up to which characters may be tokens."""


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """The tokens of sources and targets.

    Attributes:
        text: their options.
        reason: a line that says why; None if they are plain words.
        copies: whether outputs have words that can only be learned as copies of source words.
    """

    text: dict[str, dict[str, Any]]
    reason: str | None
    copies: bool = False


def make_tokenizer(options: SideOptions, *, restorable: bool) -> Tokenizer | None:
    """The tokenizer of a side; None if tokens are what is separated by spaces, or subwords of SentencePiece.

    Args:
        options: the options of the side.
        restorable: whether text must be restored from tokens, as that of outputs.
    """
    if options.kind == "characters":
        return CharacterTokenizer(lowercase=options.lowercase)
    if options.kind == "tokenizer":
        return HuggingFaceTokenizer.load(options.tokenizer or "", lowercase=options.lowercase)
    if options.kind == "words" and options.pre_tokenizer != "none":
        digits = options.pre_tokenizer == "digits"
        return PunctuationTokenizer(digits=digits, joiners=restorable, lowercase=options.lowercase)
    return WhitespaceTokenizer(lowercase=True) if options.kind == "words" and options.lowercase else None


def tokenized(sentences: Sequence[Sequence[str]], options: Mapping[str, Any]) -> list[Sequence[str]]:
    """Split sentences into the tokens that the options of a side describe; subwords count as words."""
    tokenizer = make_tokenizer(SideOptions.parse(options), restorable=False)
    if tokenizer is None:
        return list(sentences)
    return [tokenizer.split(" ".join(sentence)) for sentence in sentences]


def rare_share(sentences: Sequence[Sequence[str]], partners: Sequence[Sequence[str]] | None = None) -> float:
    """The share of sentences with a token that occurs in no other sentence.

    Args:
        sentences: the tokens of the sources or targets.
        partners: the tokens of the other side of each pair, if tokens that occur there do not count.

    >>> rare_share([["a", "b"], ["a", "c"], ["c", "a"], ["a"]])
    0.25
    >>> rare_share([["call", "Ann"], ["call", "Ben"]], [["phone", "Ann"], ["phone", "Al"]])
    0.5
    """
    counts = Counter(token for sentence in sentences for token in set(sentence))
    copied: Sequence[Sequence[str]] = partners or [()] * len(sentences)
    rare = sum(
        any(counts[token] == 1 and token not in partner for token in sentence)
        for sentence, partner in zip(sentences, copied, strict=True)
    )
    return rare / max(len(sentences), 1)


def choose_tokens(examples: Sequence[Example], *, may_copy: bool = False) -> TokenChoice:
    """Choose the coarsest tokens that can be learned from the training examples, the same kind for both sides.

    Args:
        examples: the training examples.
        may_copy: whether the model may get a copy mechanism, with which a word need not be learned if it occurs in
            source and target.
    """
    sides = {
        "source": [example.source for example in examples],
        "target": [example.target for example in examples],
    }
    shares: dict[str, dict[str, float]] = {}
    for name, options in CANDIDATES.items():
        source, target = (tokenized(sentences, options) for sentences in sides.values())
        shares[name] = {"source": rare_share(source), "target": rare_share(target)}
        if _can_be_learned(shares[name]):
            break
        copied = {"source": rare_share(source, target), "target": rare_share(target, source)}
        if may_copy and name != "characters" and _can_be_learned(copied):
            return _with_copies(name, shares[name], copied)
    if name == "words":
        return TokenChoice({}, None)
    side = max(sides, key=lambda side: shares["words"][side] - MAX_RARE[side])
    reason = (
        f"{shares['words'][side]:.0%} of the training {side}s have a word that occurs in no other; of {name}, "
        f"{shares[name][side]:.0%}."
    )
    characters = sum(len(" ".join(sentence)) for sentence in sides[side]) / max(len(examples), 1)
    if name == "characters" and characters > MAX_CHARACTERS:
        return _for_long_texts(shares["words"][side], side)
    options = CANDIDATES[name]
    return TokenChoice({"source": dict(options), "target": dict(options)}, f"{name}, because {reason}")


def _can_be_learned(shares: Mapping[str, float]) -> bool:
    return all(share <= MAX_RARE[side] for side, share in shares.items())


def _with_copies(name: str, shares: Mapping[str, float], copied: Mapping[str, float]) -> TokenChoice:
    """Coarse tokens with the copy mechanism, where most rare words of targets are words of their sources."""
    side = max(shares, key=lambda side: shares[side] - MAX_RARE[side])
    partner = {"source": "target", "target": "source"}[side]
    reason = (
        f"{name} that are copied if need be (model.head.copy_mechanism), because {shares[side]:.0%} of the training "
        f"{side}s have a word that occurs in no other, but only {copied[side]:.0%} one that is not in their {partner}."
    )
    options = CANDIDATES[name]
    return TokenChoice({"source": dict(options), "target": dict(options)}, reason, copies=True)


def _for_long_texts(share: float, side: str) -> TokenChoice:
    """Subwords, or words without the rare ones where SentencePiece is not installed."""
    reason = f"{share:.0%} of the training {side}s have a word that occurs in no other, and are long."
    if find_spec("sentencepiece") is None:
        rare = {"min_frequency": 2}
        return TokenChoice(
            {"source": rare, "target": rare},
            f"words that occur twice; {reason} (pip install sentencepiece for subwords)",
        )
    subwords = {"kind": "subwords"}
    return TokenChoice({"source": subwords, "target": subwords}, f"subwords, because {reason}")
