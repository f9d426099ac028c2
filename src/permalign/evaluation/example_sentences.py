"""Choosing a few sentences to show, out of many."""

from collections.abc import Iterable, Sequence

COMFORTABLE_LENGTH = 16
"""The number of words up to which the picture of a sentence fits on most screens."""

NUM_EXAMPLES = 5
"""The number of sentences that the explorer offers to try."""


def choose_sentences(sentences: Iterable[Sequence[str]], count: int = NUM_EXAMPLES) -> tuple[str, ...]:
    """Choose sentences of different lengths that fit on a screen, shortest first; if none fits, the shortest ones.

    >>> choose_sentences([["a"] * length for length in range(1, 30)], 3)
    ('a a a a', 'a a a a a a a a a', 'a a a a a a a a a a a a a a')
    """
    texts = sorted({(len(words), " ".join(words)) for words in sentences})
    comfortable = [text for length, text in texts if 2 <= length <= COMFORTABLE_LENGTH]
    choice = comfortable or [text for _, text in texts[:count]]
    if len(choice) <= count:
        return tuple(choice)
    return tuple(choice[(2 * index + 1) * len(choice) // (2 * count)] for index in range(count))
