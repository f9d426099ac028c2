"""Loading whatever codec a file holds."""

from pathlib import Path

from permalign.text.codec import Codec, read_codec
from permalign.text.names import NamedWords
from permalign.text.subwords import Subwords
from permalign.text.vocabulary import Vocabulary

_KINDS: dict[str, type[Vocabulary] | type[Subwords] | type[NamedWords]] = {
    "vocabulary": Vocabulary,
    "subwords": Subwords,
    "named words": NamedWords,
}


def load_codec(path: str | Path) -> Codec:
    """The `Vocabulary`, the `Subwords` or the `NamedWords` that was saved; anything else is a `DataError`."""
    kind, _ = read_codec(path, *_KINDS)
    return _KINDS[kind].load(path)
