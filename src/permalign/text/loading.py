"""Loading whatever codec a file holds."""

from pathlib import Path

from permalign.text.codec import Codec, read_codec
from permalign.text.subwords import Subwords
from permalign.text.vocabulary import Vocabulary


def load_codec(path: str | Path) -> Codec:
    """The `Vocabulary` or the `Subwords` that was saved; anything else is a `DataError`."""
    kind, _ = read_codec(path, "vocabulary", "subwords")
    return Vocabulary.load(path) if kind == "vocabulary" else Subwords.load(path)
