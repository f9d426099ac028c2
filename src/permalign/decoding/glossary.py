"""Glossaries: source phrases whose translation is required, as a constraint on outputs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.decoding.output_constraint import Constraint
from permalign.errors import DataError
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, UNKNOWN_ID, Codec
from permalign.text.sentence_vocabulary import SentenceVocabulary

Words = tuple[str, ...]

_PIECES = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Requirement:
    """A source phrase of a sentence, and the outputs of which at least one has to occur.

    >>> requirement = Requirement(("red", "house"), (("rotes", "Haus"), ("roten", "Haus")))
    >>> requirement.is_met(("ein", "rotes", "Haus.")), requirement.is_met(("ein", "Haus"))
    (True, False)
    """

    phrase: Words
    alternatives: tuple[Words, ...]

    def is_met(self, output: Sequence[str]) -> bool:
        """Whether an output contains one of the alternatives, as adjacent words; punctuation may be attached."""
        words = split_punctuation(output)
        return any(_contains(words, split_punctuation(alternative)) for alternative in self.alternatives)


class Glossary:
    """Required outputs of source phrases.

    >>> glossary = Glossary({"house": ["Haus", "Hauses"], "red house": "rotes Haus"})
    >>> [" ".join(requirement.phrase) for requirement in glossary.find(["a", "red", "house"])]
    ['red house']

    Args:
        entries: the required output of each phrase, or several of which one is required (inflected forms, say). Words
            are separated by spaces.

    Raises:
        ValueError: a phrase or an output is empty.
    """

    def __init__(self, entries: Mapping[str, str | Sequence[str]]) -> None:
        self._requirements: dict[Words, Requirement] = {}
        for phrase, outputs in entries.items():
            words = tuple(phrase.split())
            listed = [outputs] if isinstance(outputs, str) else outputs
            alternatives = tuple(tuple(output.split()) for output in listed)
            if not words or not alternatives or () in alternatives:
                raise ValueError(f"the glossary's entry {phrase!r} needs a source phrase and an output.")
            self._requirements[words] = Requirement(words, alternatives)

    @classmethod
    def read(cls, path: str | Path) -> "Glossary":
        """Read a text file with one entry per line: the source phrase and its outputs, separated by tabs.

        Raises:
            DataError: the file cannot be read, or a line has no output.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror}).", path) from None
        except UnicodeDecodeError:
            raise DataError("is not a text file in UTF-8.", path) from None
        entries: dict[str, list[str]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            phrase, *outputs = (" ".join(part.split()) for part in line.split("\t"))
            outputs = [output for output in outputs if output]
            if not phrase or not outputs:
                raise DataError("expected a source phrase, a tab and its required output.", path, number)
            entries.setdefault(phrase, []).extend(outputs)
        if not entries:
            raise DataError(
                "has no entries; expected lines with a source phrase, a tab and its output.", path
            )
        return cls(entries)

    @cached_property
    def _without_punctuation(self) -> dict[Words, Requirement]:
        """The requirements by their phrases, with punctuation split off."""
        return {split_punctuation(phrase): requirement for phrase, requirement in self._requirements.items()}

    def find(self, sentence: Sequence[str], punctuation: bool = False) -> list[Requirement]:
        """The requirements of the phrases in a sentence, from left to right; longer phrases come before shorter ones.

        A phrase that occurs several times is required once.

        >>> glossary = Glossary({"house": "Haus"})
        >>> len(glossary.find(["a", "house,"])), len(glossary.find(["a", "house,"], punctuation=True))
        (0, 1)

        Args:
            sentence: the words of the sentence.
            punctuation: whether a phrase may have punctuation attached to it in the sentence.
        """
        requirements = self._without_punctuation if punctuation else self._requirements
        sentence = split_punctuation(sentence) if punctuation else sentence
        longest = max(map(len, requirements), default=0)
        found: dict[Words, Requirement] = {}
        start = 0
        while start < len(sentence):
            for length in range(min(longest, len(sentence) - start), 0, -1):
                words = tuple(sentence[start : start + length])
                if words in requirements:
                    found[words] = requirements[words]
                    break
            else:
                length = 1
            start += length
        return list(found.values())


@dataclass(frozen=True)
class _State:
    """How much of each requirement a prefix has written.

    Attributes:
        matched: how many tokens of each alternative of each requirement the prefix ends with.
        met: which requirements have been met.
        inner: the state of the other constraint, if there is one.
    """

    matched: tuple[tuple[int, ...], ...]
    met: tuple[bool, ...]
    inner: object


class GlossaryConstraint:
    """Lets an output end only when it contains one alternative of every requirement.

    Args:
        requirements: for each requirement, the token ids of its alternatives; none of them empty.
        vocab_size: how many tokens there are, those of the sentence's own words included.
        inner: another constraint that has to hold as well.
        forbidden: tokens that are not allowed anywhere.
    """

    requires_tokens = True

    def __init__(
        self,
        requirements: Sequence[Sequence[tuple[int, ...]]],
        vocab_size: int,
        inner: Constraint | None = None,
        forbidden: Iterable[int] = (),
    ) -> None:
        self._requirements = [list(alternatives) for alternatives in requirements]
        self._vocab_size, self._inner, self._forbidden = vocab_size, inner, sorted(forbidden)

    @cached_property
    def num_tokens(self) -> int:
        """The number of tokens of the shortest alternatives together."""
        return sum(min(map(len, alternatives)) for alternatives in self._requirements)

    def start(self) -> _State:
        """The state before the first token."""
        matched = tuple((0,) * len(alternatives) for alternatives in self._requirements)
        inner = None if self._inner is None else self._inner.start()
        return _State(matched, (False,) * len(matched), inner)

    def advance(self, state: object, token: int) -> _State:
        """The state after one more token."""
        assert isinstance(state, _State)
        written = self._advance(state, token)
        inner = None if self._inner is None else self._inner.advance(state.inner, token)
        return replace(written, inner=inner)

    def _advance(self, state: _State, token: int) -> _State:
        """The state of the requirements after one more token, beside the old state of the other constraint."""
        matched, met = [], []
        for alternatives, lengths, was_met in zip(self._requirements, state.matched, state.met, strict=True):
            after = tuple(
                _matched_after(tokens, length, token)
                for tokens, length in zip(alternatives, lengths, strict=True)
            )
            complete = any(length == len(tokens) for tokens, length in zip(alternatives, after, strict=True))
            matched.append(after)
            met.append(was_met or complete)
        return _State(tuple(matched), tuple(met), state.inner)

    def mask(self, state: object, left: int, exactly: bool) -> Tensor:
        """Anything, but the end only if all requirements are met; what is required if there is only room for that."""
        assert isinstance(state, _State)
        if self._inner is None:
            mask = torch.ones(self._vocab_size, dtype=torch.bool)
            if left <= 0:
                mask.fill_(False)
            mask[[PADDING_ID, UNKNOWN_ID, BEGIN_ID]] = False
            mask[END_ID] = True
        else:
            mask = self._inner.mask(state.inner, left, exactly)
            mask = pad(mask, (0, self._vocab_size - len(mask)))
        mask[self._forbidden] = False
        if all(state.met):
            return mask
        mask[END_ID] = False
        unmet = [required for required, met in zip(self._requirements, state.met, strict=True) if not met]
        if left <= sum(min(map(len, alternatives)) for alternatives in unmet):
            # not every token leaves room for what is missing after it: some break off what has been begun
            tokens = {token for alternatives in unmet for tokens in alternatives for token in tokens}
            fitting = [token for token in tokens if self._missing(self._advance(state, token)) < left]
            allowed = torch.zeros_like(mask)
            allowed[fitting or list(self.wanted(state))] = True
            mask &= allowed
        return mask

    def wanted(self, state: object) -> frozenset[int]:
        """The tokens that continue an alternative of a requirement that is not met yet."""
        assert isinstance(state, _State)
        return frozenset(
            tokens[length]
            for alternatives, lengths, met in zip(self._requirements, state.matched, state.met, strict=True)
            for tokens, length in zip(alternatives, lengths, strict=True)
            if not met and length < len(tokens)
        )

    def progress(self, state: object) -> int:
        """How many tokens of the requirements have been written."""
        assert isinstance(state, _State)
        return self.num_tokens - self._missing(state)

    def _missing(self, state: _State) -> int:
        """The smallest number of tokens that meet all requirements."""
        return sum(
            min(len(tokens) - length for tokens, length in zip(alternatives, lengths, strict=True))
            for alternatives, lengths, met in zip(self._requirements, state.matched, state.met, strict=True)
            if not met
        )


def require_phrases(
    requirements: Sequence[Requirement], codec: Codec, inner: Constraint | None
) -> GlossaryConstraint | None:
    """The constraint that an output contains what is required, as far as it can be written at all.

    An unknown word of a phrase is not copied, since the phrase stands for what is required.

    Args:
        requirements: what the sentence requires.
        codec: the vocabulary of the outputs of the sentence.
        inner: another constraint that has to hold as well.

    Returns:
        The constraint; None if nothing of what is required can be written.
    """
    writable = []
    replaced: set[int] = set()  # words that could be copied
    for requirement in requirements:
        encoded = [tuple(codec.encode(words)) for words in requirement.alternatives]
        known = [tokens for tokens in encoded if tokens and UNKNOWN_ID not in tokens]
        if known:
            writable.append(known)
            replaced |= _own_words(requirement.phrase, codec)
    required = {token for alternatives in writable for tokens in alternatives for token in tokens}
    return GlossaryConstraint(writable, len(codec), inner, replaced - required) if writable else None


def _own_words(words: Words, codec: Codec) -> set[int]:
    """The ids of those words that are not in the target vocabulary, but could be copied as a whole."""
    if not isinstance(codec, SentenceVocabulary):
        return set()
    encoded = [codec.encode([word]) for word in words]
    return {token for tokens in encoded if len(tokens) == 1 for token in tokens if token >= len(codec.target)}


def split_punctuation(words: Sequence[str]) -> Words:
    """Split words into runs of letters and digits, and single other characters.

    >>> split_punctuation(["on", "2021-03,"])
    ('on', '2021', '-', '03', ',')
    """
    return tuple(piece for word in words for piece in _PIECES.findall(word))


def _matched_after(tokens: tuple[int, ...], length: int, token: int) -> int:
    """How many first tokens a text ends with after one more token, if it ended with ``length`` before."""
    text = (*tokens[:length], token)
    return next(
        (size for size in range(min(len(text), len(tokens)), 0, -1) if text[-size:] == tokens[:size]), 0
    )


def _contains(words: Words, part: Words) -> bool:
    return any(words[start : start + len(part)] == part for start in range(len(words) - len(part) + 1))
