"""The interface of codecs, which turn tokens into ids and back, and the JSON files that they are saved in."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from permalign.errors import DataError, excerpt
from permalign.files import read_json, write_text

PADDING, UNKNOWN, BEGIN, END = SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PADDING_ID, UNKNOWN_ID, BEGIN_ID, END_ID = range(len(SPECIALS))

FORMAT_VERSION = 1


class Codec(Protocol):
    """Turns tokens into ids and back; the first four ids are those of `SPECIALS`."""

    def __len__(self) -> int:
        """The vocabulary size, special tokens included."""
        ...

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The ids of a sentence, without begin, end and padding symbols."""
        ...

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The tokens of a sentence up to its end symbol, without padding and begin symbols."""
        ...

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The text that each id of `encode` stands for, for display."""
        ...

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id, for display."""
        ...

    def save(self, path: str | Path) -> None:
        """Write the codec as a JSON file."""
        ...


@dataclass(frozen=True, slots=True)
class UnknownReport:
    """How much of a text is unknown to a codec.

    Attributes:
        total: the number of tokens (words, entities or subwords) in the text.
        unknown: the number of unknown tokens.
        most_frequent: the most frequent unknown tokens.
    """

    total: int
    unknown: int
    most_frequent: tuple[str, ...]

    def __str__(self) -> str:
        share = self.unknown / max(self.total, 1)
        examples = f", most often: {' '.join(self.most_frequent)}" if self.most_frequent else ""
        return f"{self.unknown:,} of {self.total:,} tokens ({share:.1%}) are unknown{examples}"


def report_unknown(codec: Codec, sentences: Iterable[Sequence[str]], show: int = 5) -> UnknownReport:
    """Count the tokens that `encode` maps to the unknown symbol.

    >>> from permalign.text.vocabulary import Vocabulary
    >>> print(report_unknown(Vocabulary(["the", "cat"]), [["the", "cow"], ["the", "cat"]]))
    1 of 4 tokens (25.0%) are unknown, most often: cow
    """
    total, unknown = 0, Counter[str]()
    for sentence in sentences:
        ids = codec.encode(sentence)
        total += len(ids)
        pairs = zip(codec.tokenize(sentence), ids, strict=True)
        unknown.update(token for token, token_id in pairs if token_id == UNKNOWN_ID)
    ranked = sorted(unknown, key=lambda token: (-unknown[token], token))
    return UnknownReport(total, unknown.total(), tuple(ranked[:show]))


def unknown_tokens(codec: Codec, sentence: Sequence[str]) -> tuple[str, ...]:
    """The tokens of a sentence that `encode` maps to the unknown symbol, each once.

    >>> from permalign.text.vocabulary import Vocabulary
    >>> unknown_tokens(Vocabulary(["the", "cat"]), ["the", "cow", "sees", "the", "cow"])
    ('cow', 'sees')
    """
    pairs = zip(codec.tokenize(sentence), codec.encode(sentence), strict=True)
    return tuple(dict.fromkeys(token for token, token_id in pairs if token_id == UNKNOWN_ID))


def until_end(ids: Iterable[int], vocab_size: int) -> list[int]:
    """The ids before the first end symbol, without padding and begin symbols.

    Raises:
        ValueError: an id is out of range.
    """
    decoded_ids = []
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise ValueError(f"ids must be from 0 to {vocab_size - 1}, found {token_id}.")
        if token_id == END_ID:
            break
        if token_id not in (PADDING_ID, BEGIN_ID):
            decoded_ids.append(token_id)
    return decoded_ids


def write_codec(path: str | Path, kind: str, content: object) -> None:
    """Write a codec's JSON file atomically."""
    record = {"format": f"permalign {kind}", "version": FORMAT_VERSION, "content": content}
    write_text(Path(path), json.dumps(record, ensure_ascii=False, indent=0) + "\n")


def read_codec(path: str | Path, *kinds: str) -> tuple[str, object]:
    """Read a codec's JSON file, which must be of one of the given kinds; returns its kind and content."""
    try:
        record = read_json(Path(path))
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
        raise DataError(f"has version {excerpt(version)} of the format; expected {FORMAT_VERSION}.", path)
    return kind, record.get("content")
