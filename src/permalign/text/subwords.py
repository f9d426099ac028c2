"""Pieces of words as numbers, learned by SentencePiece from the training side."""

import base64
import binascii
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from permalign.errors import DataError, PermalignError
from permalign.text.codec import (
    BEGIN,
    BEGIN_ID,
    END,
    END_ID,
    PADDING,
    PADDING_ID,
    UNKNOWN,
    UNKNOWN_ID,
    read_codec,
    until_end,
    write_codec,
)


class Subwords:
    """A trained SentencePiece model in the index of a `Vocabulary`.

    Tokens are joined by spaces, cut into pieces, and found again by the spaces; nothing is normalised, so
    what holds no unknown character comes back as it was.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = _sentencepiece().SentencePieceProcessor(model_proto=model)

    @classmethod
    def train(
        cls, sentences: Iterable[Sequence[str]], size: int, *, kind: Literal["unigram", "bpe"] = "unigram"
    ) -> "Subwords":
        """Learn at most ``size`` pieces (with the four specials) from the training sentences.

        Raises:
            ValueError: so few pieces do not even hold the characters, or there are no sentences.
        """
        model = io.BytesIO()
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=iter([" ".join(sentence) for sentence in sentences]),
                model_writer=model,
                vocab_size=size,
                model_type=kind,
                hard_vocab_limit=False,
                character_coverage=1.0,
                normalization_rule_name="identity",
                pad_id=PADDING_ID,
                unk_id=UNKNOWN_ID,
                bos_id=BEGIN_ID,
                eos_id=END_ID,
                pad_piece=PADDING,
                unk_piece=UNKNOWN,
                bos_piece=BEGIN,
                eos_piece=END,
                unk_surface=UNKNOWN,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(f"SentencePiece could not learn {size} pieces: {error}") from None
        return cls(model.getvalue())

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subwords) and self._model == other._model

    def __hash__(self) -> int:
        return hash(self._model)

    def __repr__(self) -> str:
        return f"Subwords of {len(self):,} pieces"

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The numbers of the sentence's pieces."""
        return list(self._processor.encode(" ".join(tokens)))

    def decode(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """The tokens that the pieces up to the end make."""
        return tuple(self._processor.decode(until_end(numbers, len(self))).split())

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The pieces of the sentence; a space before a piece is shown as ▁."""
        return list(self._processor.encode(" ".join(tokens), out_type=str))

    def convert_ids_to_tokens(self, numbers: Iterable[int]) -> list[str]:
        """The piece of each number."""
        return [self._processor.id_to_piece(number) for number in numbers]

    def save(self, path: str | Path) -> None:
        """Write the model as JSON."""
        write_codec(path, "subwords", base64.b64encode(self._model).decode("ascii"))

    @classmethod
    def load(cls, path: str | Path) -> "Subwords":
        """Read what `save` wrote; anything else is a `DataError`."""
        _, content = read_codec(path, "subwords")
        try:
            return cls(base64.b64decode(str(content), validate=True))
        except (binascii.Error, RuntimeError):
            raise DataError("does not hold a SentencePiece model.", path) from None


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise PermalignError('Subwords need sentencepiece: pip install "permalign[translation]".') from None
    return sentencepiece
