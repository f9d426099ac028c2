"""What turns tokens into numbers and back, and the JSON files it is kept in."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from permalign.errors import DataError
from permalign.files import write_text

PADDING, UNKNOWN, BEGIN, END = SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PADDING_ID, UNKNOWN_ID, BEGIN_ID, END_ID = range(len(SPECIALS))

FORMAT_VERSION = 1


class Codec(Protocol):
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

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """What each of the numbers that `encode` gives stands for, to show to people."""
        ...

    def convert_ids_to_tokens(self, numbers: Iterable[int]) -> list[str]:
        """What each number stands for, to show to people."""
        ...

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class UnknownReport:
    """How much of a text a codec does not know.

    Attributes:
        running: how many units (words, names or pieces of words) the text has.
        unknown: how many of them are unknown.
        most_frequent: the unknown units that occur most often.
    """

    running: int
    unknown: int
    most_frequent: tuple[str, ...]

    def __str__(self) -> str:
        share = self.unknown / max(self.running, 1)
        words = f", most often: {' '.join(self.most_frequent)}" if self.most_frequent else ""
        return f"{self.unknown:,} of {self.running:,} units ({share:.1%}) are unknown{words}"


def report_unknown(codec: Codec, sentences: Iterable[Sequence[str]], show: int = 5) -> UnknownReport:
    """Count the units that `encode` loses.

    >>> from permalign.text.vocabulary import Vocabulary
    >>> print(report_unknown(Vocabulary(["the", "cat"]), [["the", "cow"], ["the", "cat"]]))
    1 of 4 units (25.0%) are unknown, most often: cow
    """
    running, unknown = 0, Counter[str]()
    for sentence in sentences:
        numbers = codec.encode(sentence)
        running += len(numbers)
        pairs = zip(codec.tokenize(sentence), numbers, strict=True)
        unknown.update(unit for unit, number in pairs if number == UNKNOWN_ID)
    ranked = sorted(unknown, key=lambda unit: (-unknown[unit], unit))
    return UnknownReport(running, unknown.total(), tuple(ranked[:show]))


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


def write_codec(path: str | Path, kind: str, content: object) -> None:
    """Write a codec's JSON file so that it is there completely or not at all."""
    record = {"format": f"permalign {kind}", "version": FORMAT_VERSION, "content": content}
    write_text(Path(path), json.dumps(record, ensure_ascii=False, indent=0) + "\n")


def read_codec(path: str | Path, *kinds: str) -> tuple[str, object]:
    """The kind and the content of a codec's JSON file, which must be of one of the kinds."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}).", path) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON ({error}).", path) from None
    found = record.get("format") if isinstance(record, dict) else None
    kind = next((kind for kind in kinds if found == f"permalign {kind}"), None)
    if kind is None:
        raise DataError(f"is not a {' or '.join(kinds)} that permalign saved.", path)
    version = record.get("version")
    if version != FORMAT_VERSION:
        raise DataError(f"has version {version!r} of the format; expected {FORMAT_VERSION}.", path)
    return kind, record.get("content")
