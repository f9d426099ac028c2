"""Word vocabularies."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.text.codec import SPECIALS, UNKNOWN_ID, read_codec, until_end, write_codec


class Vocabulary:
    """A fixed list of words; any other word is mapped to the unknown symbol.

    >>> vocabulary = Vocabulary.build([["the", "cat"], ["the", "dog"]], min_frequency=1)
    >>> vocabulary.encode(["the", "cow"])
    [4, 1]
    >>> vocabulary.decode([4, 5, 3, 0])
    ('the', 'cat')

    Args:
        words: the words, all different, without the special tokens (`SPECIALS`), which have the first ids.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._tokens = (*SPECIALS, *words)
        self._ids = {token: token_id for token_id, token in enumerate(self._tokens)}
        if len(self._ids) != len(self._tokens):
            repeated = [token for token, count in Counter(self._tokens).items() if count > 1]
            raise ValueError(
                f"words must differ from each other and from {SPECIALS}, but {repeated[0]!r} does not."
            )
        # "</s>" in a text must not end the sentence, so special tokens in texts are unknown words.
        self._word_ids = {word: word_id for word, word_id in self._ids.items() if word_id >= len(SPECIALS)}

    @classmethod
    def build(
        cls, sentences: Iterable[Sequence[str]], *, min_frequency: int = 1, max_size: int | None = None
    ) -> "Vocabulary":
        """Build the vocabulary of the training sentences, by decreasing frequency; ties are in alphabetical order.

        Args:
            sentences: the training sentences.
            min_frequency: the number of occurrences below which a word is left out.
            max_size: the largest number of words, special tokens not included; None for no limit.
        """
        counts = Counter(word for sentence in sentences for word in sentence)
        for special in SPECIALS:
            counts.pop(special, None)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([word for word in ranked if counts[word] >= min_frequency][:max_size])

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, word: object) -> bool:
        return word in self._word_ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._tokens == other._tokens

    def __hash__(self) -> int:
        return hash(self._tokens)

    def __repr__(self) -> str:
        return f"Vocabulary of {len(self._word_ids):,} words"

    @property
    def tokens(self) -> tuple[str, ...]:
        """The special tokens and the words, in the order of their ids."""
        return self._tokens

    @property
    def words(self) -> tuple[str, ...]:
        """The words without the special tokens."""
        return self._tokens[len(SPECIALS) :]

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The id of each token."""
        return [self._word_ids.get(token, UNKNOWN_ID) for token in tokens]

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The token of each id up to the end symbol, without padding and begin symbols."""
        return tuple(self._tokens[token_id] for token_id in until_end(ids, len(self)))

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The tokens themselves, since each has one id."""
        return list(tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id."""
        return [self._tokens[token_id] for token_id in ids]

    def save(self, path: str | Path) -> None:
        """Write the words as a JSON file, one word per line."""
        write_codec(path, "vocabulary", self.words)

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read a file that `save` wrote; any other file raises a `DataError`."""
        _, words = read_codec(path, "vocabulary")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DataError("expected a list of words as strings.", path)
        try:
            return cls(words)
        except ValueError as error:
            raise DataError(str(error), path) from None
