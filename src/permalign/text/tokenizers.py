"""Tokenizers: they split a text into the tokens of a vocabulary, and put the text together again.

A token that is not separated from its neighbour by a space carries a joiner (￭) on that side, as in ``2021 ￭-￭ 03``, so
that the text of an output can be restored. Words keep their form as far as possible: the joiner is on the punctuation.
Sources need no joiners, because nobody has to restore them.

>>> tokenizer = PunctuationTokenizer()
>>> tokenizer.split("on 2021-03-12, (late)")
['on', '2021', '￭-￭', '03', '￭-￭', '12', '￭,', '(￭', 'late', '￭)']
>>> tokenizer.join(['on', '2021', '￭-￭', '03', '￭-￭', '12', '￭,', '(￭', 'late', '￭)'])
'on 2021-03-12, (late)'
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from permalign.errors import ConfigError, PermalignError
from permalign.hub import hub_has_address

JOINER = "￭"
SPACE = "▁"


class Tokenizer(ABC):
    """Splits a text into tokens, and joins tokens into a text.

    Args:
        lowercase: whether to lower the case of the text.
    """

    kind: str
    joins_any_token = True
    """Whether `join` takes tokens that no training text contains, such as copied ones."""

    def __init__(self, *, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    def split(self, text: str) -> list[str]:
        """The tokens of a text."""
        return self._split(text.lower() if self.lowercase else text)

    @abstractmethod
    def _split(self, text: str) -> list[str]:
        """The tokens of a text whose case is settled."""

    @abstractmethod
    def join(self, tokens: Sequence[str]) -> str:
        """The text that consists of tokens."""

    def describe(self) -> dict[str, Any]:
        """The tokenizer as a JSON object, which `load_tokenizer` reads."""
        return {"kind": self.kind, "lowercase": self.lowercase}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash(repr(self.describe()))


class WhitespaceTokenizer(Tokenizer):
    """Splits at spaces only; with ``lowercase``, words in lower case."""

    kind = "whitespace"

    def _split(self, text: str) -> list[str]:
        return text.split()

    def join(self, tokens: Sequence[str]) -> str:
        """The words with spaces between them."""
        return " ".join(tokens)


class CharacterTokenizer(Tokenizer):
    """Every character is a token; a space is shown as ▁.

    >>> CharacterTokenizer().split("so be")
    ['s', 'o', '▁', 'b', 'e']
    """

    kind = "characters"

    def _split(self, text: str) -> list[str]:
        return [SPACE if character == " " else character for character in text]

    def join(self, tokens: Sequence[str]) -> str:
        """The characters without anything between them."""
        return "".join(tokens).replace(SPACE, " ")


class PunctuationTokenizer(Tokenizer):
    """Splits off punctuation, and with ``digits`` every digit, by the pre-tokenizers of the library `tokenizers`.

    Args:
        digits: whether every digit is a token of its own.
        joiners: whether tokens show that there is no space beside them; without, the text cannot be restored.
        lowercase: whether to lower the case of the text.
    """

    kind = "punctuation"

    def __init__(self, *, digits: bool = False, joiners: bool = True, lowercase: bool = False) -> None:
        super().__init__(lowercase=lowercase)
        self.digits = digits
        self.joiners = joiners
        library = _tokenizers().pre_tokenizers
        parts = [library.WhitespaceSplit(), library.Punctuation("isolated")]
        self._pre_tokenizer = library.Sequence([*parts, *([library.Digits(True)] if digits else [])])

    def _split(self, text: str) -> list[str]:
        pieces = self._pre_tokenizer.pre_tokenize_str(text)
        tokens = [piece for piece, _ in pieces]
        if not self.joiners:
            return tokens
        marked = list(tokens)
        for index in range(1, len(pieces)):
            (_, (_, end)), (_, (begin, _)) = pieces[index - 1 : index + 1]
            if begin > end:
                continue
            if not tokens[index - 1][-1].isalnum() and tokens[index][0].isalnum():
                marked[index - 1] += JOINER
            else:
                marked[index] = JOINER + marked[index]
        return marked

    def join(self, tokens: Sequence[str]) -> str:
        """The tokens with spaces between them, except where there is a joiner."""
        text = " ".join(tokens)
        return (
            text.replace(f"{JOINER} {JOINER}", "")
            .replace(f" {JOINER}", "")
            .replace(f"{JOINER} ", "")
            .strip(JOINER)
        )

    def describe(self) -> dict[str, Any]:
        """The tokenizer as a JSON object."""
        return {**super().describe(), "digits": self.digits, "joiners": self.joiners}


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of the library `tokenizers`, which most models of Hugging Face have as ``tokenizer.json``.

    Args:
        definition: the content of ``tokenizer.json``.
        lowercase: whether to lower the case of the text first.
    """

    kind = "tokenizers"
    joins_any_token = False

    def __init__(self, definition: str, *, lowercase: bool = False) -> None:
        super().__init__(lowercase=lowercase)
        self._tokenizer = _tokenizers().Tokenizer.from_str(definition)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @classmethod
    def load(cls, name: str, *, lowercase: bool = False) -> "HuggingFaceTokenizer":
        """Load ``tokenizer.json`` from a file or a folder, or from the Hugging Face hub by the name of a model.

        Raises:
            ConfigError: there is no such tokenizer.
        """
        path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
        library = _tokenizers()
        offline = not path.is_file() and not hub_has_address()
        try:
            if not path.is_file():
                from huggingface_hub import hf_hub_download

                # If the hub cannot be reached, its client would try again for half a minute.
                path = Path(hf_hub_download(name, "tokenizer.json", local_files_only=offline))
            tokenizer = library.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain exceptions
            reason = "which cannot be reached" if offline else " ".join(str(error).split())[:200]
            raise ConfigError(
                f"there is no tokenizer {name}: neither a file, nor a folder with tokenizer.json, nor a model on the "
                f"Hugging Face hub that has one ({reason})."
            ) from None
        return cls(tokenizer.to_str(), lowercase=lowercase)

    def _split(self, text: str) -> list[str]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).tokens)

    def join(self, tokens: Sequence[str]) -> str:
        """The text as the tokenizer's own decoder puts it together."""
        ids = [token_id for token in tokens if (token_id := self._tokenizer.token_to_id(token)) is not None]
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def describe(self) -> dict[str, Any]:
        """The tokenizer as a JSON object."""
        return {**super().describe(), "definition": self._tokenizer.to_str()}


_KINDS: dict[str, type[Tokenizer]] = {
    tokenizer.kind: tokenizer
    for tokenizer in (WhitespaceTokenizer, CharacterTokenizer, PunctuationTokenizer, HuggingFaceTokenizer)
}


def load_tokenizer(description: Mapping[str, Any]) -> Tokenizer:
    """Make a tokenizer from what its method ``describe`` returned.

    Raises:
        ValueError: the description is of no tokenizer.
    """
    options = dict(description)
    kind = _KINDS.get(options.pop("kind", ""))
    if kind is None:
        raise ValueError("the tokenizer is of an unknown kind.")
    try:
        return kind(**options)
    except PermalignError:
        raise
    except Exception as error:  # the library raises plain exceptions
        raise ValueError(f"the tokenizer cannot be made ({error}).") from None


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.pre_tokenizers
    except ImportError:
        raise PermalignError('This needs the library tokenizers: pip install "permalign[models]".') from None
    return tokenizers
