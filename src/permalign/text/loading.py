"""Load a codec of any kind from its file."""

from pathlib import Path

from permalign.text.codec import Codec, read_codec
from permalign.text.entities import EntityVocabulary
from permalign.text.subwords import Subwords
from permalign.text.tokenized_vocabulary import KIND as TOKENIZED
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.vocabulary import Vocabulary

_KINDS: dict[str, type[Vocabulary] | type[Subwords] | type[EntityVocabulary] | type[TokenizedVocabulary]] = {
    "vocabulary": Vocabulary,
    "subwords": Subwords,
    "named words": EntityVocabulary,
    TOKENIZED: TokenizedVocabulary,
}


def load_codec(path: str | Path) -> Codec:
    """Load a vocabulary of any kind; any other file raises a `DataError`."""
    kind, _ = read_codec(path, *_KINDS)
    return _KINDS[kind].load(path)
