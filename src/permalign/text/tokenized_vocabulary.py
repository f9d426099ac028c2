"""Vocabularies whose words are the tokens of a tokenizer: characters, words without punctuation, pieces of words."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.text.codec import read_codec, write_codec
from permalign.text.tokenizers import Tokenizer, load_tokenizer
from permalign.text.vocabulary import Vocabulary

KIND = "tokenized words"


class TokenizedVocabulary:
    """A `Vocabulary` of the tokens into which a tokenizer splits a sentence.

    >>> from permalign.text.tokenizers import CharacterTokenizer
    >>> characters = TokenizedVocabulary.build([["to", "do"]], CharacterTokenizer())
    >>> characters.tokenize(["do", "it"]), characters.encode(["do", "it"])
    (['d', 'o', '▁', 'i', 't'], [5, 4, 7, 1, 6])
    >>> characters.decode([5, 4, 7, 6, 4])
    ('do', 'to')

    Args:
        vocabulary: the vocabulary of tokens.
        tokenizer: splits sentences into tokens, and joins tokens into text.
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer

    @classmethod
    def build(
        cls,
        sentences: Iterable[Sequence[str]],
        tokenizer: Tokenizer,
        *,
        min_frequency: int = 1,
        max_size: int | None = None,
    ) -> "TokenizedVocabulary":
        """The vocabulary of the tokens of the training sentences; see `Vocabulary.build`."""
        tokens = [tokenizer.split(" ".join(sentence)) for sentence in sentences]
        return cls(Vocabulary.build(tokens, min_frequency=min_frequency, max_size=max_size), tokenizer)

    def __len__(self) -> int:
        return len(self._vocabulary)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TokenizedVocabulary)
            and self._vocabulary == other._vocabulary
            and self._tokenizer == other._tokenizer
        )

    def __hash__(self) -> int:
        return hash((self._vocabulary, self._tokenizer))

    def __repr__(self) -> str:
        return f"{type(self._tokenizer).__name__} with a {self._vocabulary!r}"

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The ids of the tokens into which the tokenizer splits the sentence."""
        return self._vocabulary.encode(self.tokenize(tokens))

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words of the text into which the tokenizer joins the tokens up to the end symbol."""
        return self.join(self._vocabulary.decode(ids))

    @property
    def joins_any_token(self) -> bool:
        """Whether `join` takes tokens that are not in the vocabulary, such as copied ones."""
        return self._tokenizer.joins_any_token

    def join(self, tokens: Sequence[str]) -> tuple[str, ...]:
        """The words of the text into which the tokenizer joins tokens."""
        return tuple(self._tokenizer.join(tokens).split())

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The tokens into which the tokenizer splits the sentence."""
        return self._tokenizer.split(" ".join(tokens))

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id."""
        return self._vocabulary.convert_ids_to_tokens(ids)

    def save(self, path: str | Path) -> None:
        """Write the tokens and the tokenizer as a JSON file."""
        content = {"words": self._vocabulary.words, "tokenizer": self._tokenizer.describe()}
        write_codec(path, KIND, content)

    @classmethod
    def load(cls, path: str | Path) -> "TokenizedVocabulary":
        """Read a file that `save` wrote; any other file raises a `DataError`."""
        _, content = read_codec(path, KIND)
        record = content if isinstance(content, dict) else {}
        words, tokenizer = record.get("words"), record.get("tokenizer")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DataError("expected a list of words as strings.", path)
        if not isinstance(tokenizer, dict):
            raise DataError("expected the description of a tokenizer.", path)
        try:
            return cls(Vocabulary(words), load_tokenizer(tokenizer))
        except ValueError as error:
            raise DataError(str(error), path) from None
