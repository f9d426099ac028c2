"""Words as numbers, names as what they name."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.text.codec import read_codec, write_codec
from permalign.text.vocabulary import Vocabulary


class EntityVocabulary:
    """A `Vocabulary` that reads a known name, of one word or several, as one word: the kind of what it names.

    Names are looked for from left to right, the longest first. What was read so is not written again: `decode` gives
    the kinds.

    >>> words = EntityVocabulary.build([["rivers", "in", "new", "york"]], {"new york": "stateid", "utah": "stateid"})
    >>> words.tokenize(["rivers", "in", "utah"]), words.encode(["rivers", "in", "utah"])
    (['rivers', 'in', 'utah'], [5, 4, 6])
    >>> words.tokenize(["rivers", "in", "new", "york"]), words.encode(["rivers", "in", "new", "york"])
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
        min_frequency: int = 1,
        max_size: int | None = None,
    ) -> "EntityVocabulary":
        """The words and kinds of the training sentences; as `Vocabulary.build`."""
        reader = cls(Vocabulary([]), names)
        read = [[kind for _, kind in reader._read(sentence)] for sentence in sentences]
        return cls(Vocabulary.build(read, min_frequency=min_frequency, max_size=max_size), names)

    def __len__(self) -> int:
        return len(self._vocabulary)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, EntityVocabulary)
            and self._vocabulary == other._vocabulary
            and self._names == other._names
        )

    def __hash__(self) -> int:
        return hash((self._vocabulary, len(self._names)))

    def __repr__(self) -> str:
        return f"EntityVocabulary: {self._vocabulary!r}, {len(self._names):,} names"

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The number of each word, and of the kind of each name."""
        return self._vocabulary.encode([kind for _, kind in self._read(tokens)])

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The word or kind of each number up to the end, without padding and begin."""
        return self._vocabulary.decode(numbers)

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The words, and the names as they were written."""
        return [written for written, _ in self._read(tokens)]

    def convert_ids_to_tokens(self, numbers: Iterable[int]) -> list[str]:
        """The word or kind of each number."""
        return self._vocabulary.convert_ids_to_tokens(numbers)

    def save(self, path: str | Path) -> None:
        """Write the words and the names as JSON."""
        content = {"words": self._vocabulary.words, "names": self._names}
        write_codec(path, "named words", content)

    @classmethod
    def load(cls, path: str | Path) -> "EntityVocabulary":
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
        index = 0
        while index < len(tokens):
            for width in range(min(self._longest, len(tokens) - index), 0, -1):
                written = tuple(tokens[index : index + width])
                if written in self._kinds:
                    yield " ".join(written), self._kinds[written]
                    break
            else:
                width = 1
                yield tokens[index], tokens[index]
            index += width
