"""Words as numbers, names as what they name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.text.codec import read_codec, write_codec
from permalign.text.vocabulary import Vocabulary


class NamedWords:
    """A `Vocabulary` that reads a known name, of one word or several, as one word: the kind of what it names.

    Names are looked for from left to right, the longest first. What was read so is not written again: `decode` gives
    the kinds.

    >>> words = NamedWords.build([["rivers", "in", "new", "york"]], {"new york": "stateid", "utah": "stateid"})
    >>> words.units(["rivers", "in", "utah"]), words.encode(["rivers", "in", "utah"])
    (['rivers', 'in', 'utah'], [5, 4, 6])
    >>> words.units(["rivers", "in", "new", "york"]), words.encode(["rivers", "in", "new", "york"])
    (['rivers', 'in', 'new york'], [5, 4, 6])

    Args:
        vocabulary: of words and kinds.
        names: the kind of each name, whose words are separated by spaces.
    """

    def __init__(self, vocabulary: Vocabulary, names: Mapping[str, str]) -> None:
        self._vocabulary = vocabulary
        self._names = dict(names)
        self._kinds = {tuple(name.split()): kind for name, kind in names.items()}
        if len(self._kinds) != len(self._names) or () in self._kinds:
            raise ValueError("names must have words, and each its own.")
        self._longest = max(map(len, self._kinds), default=0)

    @classmethod
    def build(
        cls,
        sentences: Iterable[Sequence[str]],
        names: Mapping[str, str],
        *,
        minimum_count: int = 1,
        maximum_size: int | None = None,
    ) -> "NamedWords":
        """The words and kinds of the training sentences; as `Vocabulary.build`."""
        reader = cls(Vocabulary([]), names)
        read = [[kind for _, kind in reader._read(sentence)] for sentence in sentences]
        return cls(Vocabulary.build(read, minimum_count=minimum_count, maximum_size=maximum_size), names)

    def __len__(self) -> int:
        return len(self._vocabulary)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NamedWords)
            and self._vocabulary == other._vocabulary
            and self._names == other._names
        )

    def __hash__(self) -> int:
        return hash((self._vocabulary, len(self._names)))

    def __repr__(self) -> str:
        return f"NamedWords: {self._vocabulary!r}, {len(self._names):,} names"

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The number of each word, and of the kind of each name."""
        return self._vocabulary.encode([kind for _, kind in self._read(tokens)])

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The word or kind of each number up to the end, without padding and begin."""
        return self._vocabulary.decode(numbers)

    def units(self, tokens: Sequence[str]) -> list[str]:
        """The words, and the names as they were written."""
        return [written for written, _ in self._read(tokens)]

    def pieces(self, numbers: Iterable[int]) -> list[str]:
        """The word or kind of each number."""
        return self._vocabulary.pieces(numbers)

    def save(self, path: str | Path) -> None:
        """Write the words and the names as JSON."""
        content = {"words": self._vocabulary.words, "names": self._names}
        write_codec(path, "named words", content)

    @classmethod
    def load(cls, path: str | Path) -> "NamedWords":
        """Read what `save` wrote; anything else is a `DataError`."""
        _, content = read_codec(path, "named words")
        words, names = (
            (content.get("words"), content.get("names")) if isinstance(content, dict) else (None, None)
        )
        if not isinstance(words, list) or not isinstance(names, dict):
            raise DataError("expected a list of words and the names with their kinds.", path)
        if not all(isinstance(word, str) for word in (*words, *names.values())):
            raise DataError("expected words and kinds to be strings.", path)
        try:
            return cls(Vocabulary(words), names)
        except ValueError as error:
            raise DataError(str(error), path) from None

    def _read(self, tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Each word twice; each name as it is written, and its kind."""
        place = 0
        while place < len(tokens):
            for width in range(min(self._longest, len(tokens) - place), 0, -1):
                written = tuple(tokens[place : place + width])
                if written in self._kinds:
                    yield " ".join(written), self._kinds[written]
                    break
            else:
                width = 1
                yield tokens[place], tokens[place]
            place += width
