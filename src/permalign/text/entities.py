"""Vocabularies with entity linking: the name of a known entity is replaced by its kind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.text.codec import read_codec, write_codec
from permalign.text.vocabulary import Vocabulary


class EntityVocabulary:
    """A `Vocabulary` that replaces the name of a known entity, of one or more words, by one token: its kind.

    Names are matched from left to right, and longer names are preferred. The names cannot be restored: `decode` returns
    kinds.

    >>> words = EntityVocabulary.build([["rivers", "in", "new", "york"]], {"new york": "stateid", "utah": "stateid"})
    >>> words.tokenize(["rivers", "in", "utah"]), words.encode(["rivers", "in", "utah"])
    (['rivers', 'in', 'utah'], [5, 4, 6])
    >>> words.tokenize(["rivers", "in", "new", "york"]), words.encode(["rivers", "in", "new", "york"])
    (['rivers', 'in', 'new york'], [5, 4, 6])

    Args:
        vocabulary: the vocabulary of words and kinds.
        entities: the kind of each entity by its name, whose words are separated by spaces.
    """

    def __init__(self, vocabulary: Vocabulary, entities: Mapping[str, str]) -> None:
        self._vocabulary = vocabulary
        self._entities = dict(entities)
        self._kinds = {tuple(name.split()): kind for name, kind in entities.items()}
        if len(self._kinds) != len(self._entities) or () in self._kinds:
            raise ValueError("the names of entities must be distinct and have at least one word each.")
        self._max_name_length = max(map(len, self._kinds), default=0)

    @classmethod
    def build(
        cls,
        sentences: Iterable[Sequence[str]],
        entities: Mapping[str, str],
        *,
        min_frequency: int = 1,
        max_size: int | None = None,
    ) -> "EntityVocabulary":
        """The vocabulary of the training sentences after entity linking; see `Vocabulary.build`."""
        linker = cls(Vocabulary([]), entities)
        linked = [[kind for _, kind in linker._link(sentence)] for sentence in sentences]
        return cls(Vocabulary.build(linked, min_frequency=min_frequency, max_size=max_size), entities)

    def __len__(self) -> int:
        return len(self._vocabulary)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, EntityVocabulary)
            and self._vocabulary == other._vocabulary
            and self._entities == other._entities
        )

    def __hash__(self) -> int:
        return hash((self._vocabulary, len(self._entities)))

    def __repr__(self) -> str:
        return f"EntityVocabulary: {self._vocabulary!r}, {len(self._entities):,} entities"

    @property
    def tokens(self) -> tuple[str, ...]:
        """The special tokens, the words and the kinds, in the order of their ids."""
        return self._vocabulary.tokens

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The id of each word, and of the kind of each entity."""
        return self._vocabulary.encode([kind for _, kind in self._link(tokens)])

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The word or kind of each id up to the end symbol, without padding and begin symbols."""
        return self._vocabulary.decode(ids)

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The words, and the names of entities as they occur in the sentence."""
        return [text for text, _ in self._link(tokens)]

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The word or kind of each id."""
        return self._vocabulary.convert_ids_to_tokens(ids)

    def save(self, path: str | Path) -> None:
        """Write the words and the entities as a JSON file."""
        content = {"words": self._vocabulary.words, "names": self._entities}
        write_codec(path, "named words", content)

    @classmethod
    def load(cls, path: str | Path) -> "EntityVocabulary":
        """Read a file that `save` wrote; any other file raises a `DataError`."""
        _, content = read_codec(path, "named words")
        words, entities = (
            (content.get("words"), content.get("names")) if isinstance(content, dict) else (None, None)
        )
        if not isinstance(words, list) or not isinstance(entities, dict):
            raise DataError("expected a list of words, and the names of entities with their kinds.", path)
        if not all(isinstance(word, str) for word in (*words, *entities.values())):
            raise DataError("expected words and kinds to be strings.", path)
        try:
            return cls(Vocabulary(words), entities)
        except ValueError as error:
            raise DataError(str(error), path) from None

    def _link(self, tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield pairs of text and token: the name of an entity and its kind, or the same word twice."""
        start = 0
        while start < len(tokens):
            for length in range(min(self._max_name_length, len(tokens) - start), 0, -1):
                name = tuple(tokens[start : start + length])
                if name in self._kinds:
                    yield " ".join(name), self._kinds[name]
                    break
            else:
                length = 1
                yield tokens[start], tokens[start]
            start += length
