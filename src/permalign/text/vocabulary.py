"""Words as numbers."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from permalign.errors import DataError

PADDING, UNKNOWN, BEGIN, END = SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PADDING_ID, UNKNOWN_ID, BEGIN_ID, END_ID = range(len(SPECIALS))

FORMAT_VERSION = 1


class Encoder(Protocol):
    """What turns tokens into numbers and back; the first four numbers are those of `SPECIALS`."""

    def __len__(self) -> int:
        """How many numbers there are."""
        ...

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The numbers of a sentence, without begin and end; never that of padding."""
        ...

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The tokens of a sentence up to its end, without padding and begin."""
        ...

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        ...


class Vocabulary:
    """A fixed list of words; it cannot grow, and any other word is `UNKNOWN`.

    >>> vocabulary = Vocabulary.build([["the", "cat"], ["the", "dog"]], minimum_count=1)
    >>> vocabulary.encode(["the", "cow"])
    [4, 1]
    >>> vocabulary.decode([4, 5, 3, 0])
    ('the', 'cat')

    Args:
        words: all different, and none of `SPECIALS`, which come before them.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._tokens = (*SPECIALS, *words)
        self._numbers = {token: number for number, token in enumerate(self._tokens)}
        if len(self._numbers) != len(self._tokens):
            twice = [token for token, count in Counter(self._tokens).items() if count > 1]
            raise ValueError(
                f"words must differ from each other and from {SPECIALS}, but {twice[0]!r} does not."
            )
        # A special that stands in a text is no special: what is read must not pass for padding or an end.
        self._words = {word: number for word, number in self._numbers.items() if number >= len(SPECIALS)}

    @classmethod
    def build(
        cls, sentences: Iterable[Sequence[str]], *, minimum_count: int = 1, maximum_size: int | None = None
    ) -> "Vocabulary":
        """The words of the training sentences, the most frequent first, equally frequent ones by alphabet.

        Args:
            sentences: what to count.
            minimum_count: leave out words that occur less often.
            maximum_size: keep only that many words (the specials come on top).
        """
        counts = Counter(word for sentence in sentences for word in sentence)
        for special in SPECIALS:
            counts.pop(special, None)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([word for word in ranked if counts[word] >= minimum_count][:maximum_size])

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, word: object) -> bool:
        return word in self._words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._tokens == other._tokens

    def __hash__(self) -> int:
        return hash(self._tokens)

    def __repr__(self) -> str:
        return f"Vocabulary of {len(self._words):,} words"

    @property
    def tokens(self) -> tuple[str, ...]:
        """The specials and the words, in the order of their numbers."""
        return self._tokens

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The number of each token."""
        return [self._words.get(token, UNKNOWN_ID) for token in tokens]

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The token of each number up to the end, without padding and begin."""
        return tuple(self._tokens[number] for number in until_end(numbers, len(self)))

    def save(self, path: str | Path) -> None:
        """Write the words as JSON, with one word a line for the human reader."""
        write_encoder(path, "vocabulary", self._tokens[len(SPECIALS) :])

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read what `save` wrote; anything else is a `DataError`."""
        words = read_encoder(path, "vocabulary")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DataError("expected the words as a list of strings.", path)
        try:
            return cls(words)
        except ValueError as error:
            raise DataError(str(error), path) from None


@dataclass(frozen=True, slots=True)
class UnknownReport:
    """How much of a text an encoder does not know.

    Attributes:
        running: how many tokens the text has.
        unknown: how many of them contain something unknown.
        most_frequent: the unknown tokens that occur most often.
    """

    running: int
    unknown: int
    most_frequent: tuple[str, ...]

    def __str__(self) -> str:
        share = self.unknown / max(self.running, 1)
        words = f", most often: {' '.join(self.most_frequent)}" if self.most_frequent else ""
        return f"{self.unknown:,} of {self.running:,} tokens ({share:.1%}) are unknown{words}"


def report_unknown(encoder: Encoder, sentences: Iterable[Sequence[str]], show: int = 5) -> UnknownReport:
    """Count the tokens that `encode` loses.

    >>> print(report_unknown(Vocabulary(["the", "cat"]), [["the", "cow"], ["the", "cat"]]))
    1 of 4 tokens (25.0%) are unknown, most often: cow
    """
    counts = Counter(token for sentence in sentences for token in sentence)
    unknown = {token: count for token, count in counts.items() if UNKNOWN_ID in encoder.encode([token])}
    ranked = sorted(unknown, key=lambda token: (-unknown[token], token))
    return UnknownReport(counts.total(), sum(unknown.values()), tuple(ranked[:show]))


def until_end(numbers: Iterable[int], size: int) -> list[int]:
    """The numbers before the first end, without padding and begin; one that is out of range is an error."""
    kept = []
    for number in numbers:
        if not 0 <= number < size:
            raise ValueError(f"numbers must be from 0 to {size - 1}, found {number}.")
        if number == END_ID:
            break
        if number not in (PADDING_ID, BEGIN_ID):
            kept.append(number)
    return kept


def write_encoder(path: str | Path, kind: str, content: object) -> None:
    """Write an encoder's JSON file so that it is there completely or not at all."""
    path = Path(path)
    record = {"format": f"permalign {kind}", "version": FORMAT_VERSION, "content": content}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(json.dumps(record, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from error
    finally:
        temporary.unlink(missing_ok=True)


def read_encoder(path: str | Path, kind: str) -> object:
    """The content of an encoder's JSON file."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}).", path) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON ({error}).", path) from None
    if not isinstance(record, dict) or record.get("format") != f"permalign {kind}":
        raise DataError(f"is not a {kind} that permalign saved.", path)
    if record.get("version") != FORMAT_VERSION:
        raise DataError(
            f"has version {record.get('version')!r} of the format; this permalign reads {FORMAT_VERSION}.",
            path,
        )
    return record.get("content")
