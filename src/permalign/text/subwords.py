"""Subword vocabularies, learned by SentencePiece from the training sentences."""

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
    """A trained SentencePiece model, used like a `Vocabulary`.

    Tokens are joined by spaces before they are split into subwords, so that decoding restores them. Nothing is
    normalised; only unknown characters cannot be restored.
    """

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = _sentencepiece().SentencePieceProcessor(model_proto=model)

    @classmethod
    def train(
        cls,
        sentences: Iterable[Sequence[str]],
        vocab_size: int,
        *,
        algorithm: Literal["unigram", "bpe"] = "unigram",
    ) -> "Subwords":
        """Learn a vocabulary of at most ``vocab_size`` subwords, the four special tokens included.

        Raises:
            ValueError: ``vocab_size`` is smaller than the number of characters, or there are no sentences.
        """
        model = io.BytesIO()
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=iter([" ".join(sentence) for sentence in sentences]),
                model_writer=model,
                vocab_size=vocab_size,
                model_type=algorithm,
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
            raise ValueError(f"SentencePiece could not learn {vocab_size} subwords: {error}") from None
        return cls(model.getvalue())

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subwords) and self._model == other._model

    def __hash__(self) -> int:
        return hash(self._model)

    def __repr__(self) -> str:
        return f"Subwords of size {len(self):,}"

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The ids of the sentence's subwords."""
        return list(self._processor.encode(" ".join(tokens)))

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The tokens that consist of the subwords up to the end symbol."""
        return tuple(self._processor.decode(until_end(ids, len(self))).split())

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The subwords of the sentence; a space before a subword is shown as ▁."""
        return list(self._processor.encode(" ".join(tokens), out_type=str))

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The subword of each id."""
        return [self._processor.id_to_piece(token_id) for token_id in ids]

    def save(self, path: str | Path) -> None:
        """Write the model as a JSON file."""
        write_codec(path, "subwords", base64.b64encode(self._model).decode("ascii"))

    @classmethod
    def load(cls, path: str | Path) -> "Subwords":
        """Read a file that `save` wrote; any other file raises a `DataError`."""
        _, content = read_codec(path, "subwords")
        try:
            return cls(base64.b64decode(str(content), validate=True))
        except (binascii.Error, RuntimeError):
            raise DataError("does not hold a SentencePiece model.", path) from None


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise PermalignError('Subwords need sentencepiece: pip install "permalign[subwords]".') from None
    return sentencepiece
