"""Words as numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.text.codec import SPECIALS, UNKNOWN_ID, read_codec, until_end, write_codec


class Vocabulary:
    """A fixed list of words; it cannot grow, and any other word is `UNKNOWN`.

    >>> vocabulary = Vocabulary.build([["the", "cat"], ["the", "dog"]], min_frequency=1)
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
        cls, sentences: Iterable[Sequence[str]], *, min_frequency: int = 1, max_size: int | None = None
    ) -> "Vocabulary":
        """The words of the training sentences, the most frequent first, equally frequent ones by alphabet.

        Args:
            sentences: what to count.
            min_frequency: leave out words that occur less often.
            max_size: keep only that many words (the specials come on top).
        """
        counts = Counter(word for sentence in sentences for word in sentence)
        for special in SPECIALS:
            counts.pop(special, None)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls([word for word in ranked if counts[word] >= min_frequency][:max_size])

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

    @property
    def words(self) -> tuple[str, ...]:
        """The words alone."""
        return self._tokens[len(SPECIALS) :]

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The number of each token."""
        return [self._words.get(token, UNKNOWN_ID) for token in tokens]

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The token of each number up to the end, without padding and begin."""
        return tuple(self._tokens[number] for number in until_end(numbers, len(self)))

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The tokens themselves: each has one number."""
        return list(tokens)

    def convert_ids_to_tokens(self, numbers: Iterable[int]) -> list[str]:
        """The token of each number."""
        return [self._tokens[number] for number in numbers]

    def save(self, path: str | Path) -> None:
        """Write the words as JSON, with one word a line for the human reader."""
        write_codec(path, "vocabulary", self.words)

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read what `save` wrote; anything else is a `DataError`."""
        _, words = read_codec(path, "vocabulary")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DataError("expected the words as a list of strings.", path)
        try:
            return cls(words)
        except ValueError as error:
            raise DataError(str(error), path) from None
