"""Which words of a sentence each of its tokens belongs to."""

from collections.abc import Sequence

from permalign.text.codec import Codec
from permalign.text.tokenizers import JOINER

MARKS = f"▁ Ġ{JOINER}"
"""What stands for a space, or for none, in tokens; or separates the words of an entity."""


def word_spans(codec: Codec, words: Sequence[str]) -> list[range]:
    """The indices of the words that each token of a sentence covers: one for a word or subword, more for an entity.

    Tokens and words are compared character by character, so that no tokenizer has to know about words.

    Raises:
        ValueError: the tokens do not consist of the characters of the words.

    >>> from permalign.text.entities import EntityVocabulary
    >>> codec = EntityVocabulary.build([["rivers", "in", "new", "york"]], {"new york": "stateid"})
    >>> word_spans(codec, ["rivers", "in", "new", "york"])
    [range(0, 1), range(1, 2), range(2, 4)]
    """
    tokens = codec.tokenize(words)
    if tokens == list(words):
        return [range(index, index + 1) for index in range(len(words))]
    owners = [index for index, word in enumerate(words) for _ in _letters(word)]
    spans, read = [], 0
    for token in tokens:
        first = owners[min(read, len(owners) - 1)]
        read += len(_letters(token))
        last = owners[min(max(read - 1, 0), len(owners) - 1)]
        spans.append(range(first, max(first, last) + 1))
    if read != len(owners):
        raise ValueError(
            f"the tokens {' '.join(tokens)!r} have other characters than the words {' '.join(words)!r}, so that they "
            "cannot be merged back to words."
        )
    return spans


def _letters(text: str) -> str:
    return "".join(character for character in text if character not in MARKS)
