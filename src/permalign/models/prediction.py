"""The outputs of a model, and explanations of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from permalign.errors import excerpt
from permalign.notebooks import ShownInNotebooks
from permalign.structures import Derivation, Segment, bracketed


@dataclass(frozen=True)
class Explanation(ShownInNotebooks):
    """How a model got from a sentence to an output.

    Attributes:
        source: the source words as the model read them, or their subwords.
        target: the words of the output, or their subwords.
        order: the index of the source word at each position after reordering; None if the reordering is not discrete.
        derivation: the tree behind the order; None if there is none.
        segments: the source words that each part of the output is aligned with; None for a head without alignments.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    order: tuple[int, ...] | None
    derivation: Derivation | None
    segments: tuple[Segment, ...] | None

    @property
    def reordered(self) -> tuple[str, ...] | None:
        """The source words in their new order."""
        return None if self.order is None else tuple(self.source[token] for token in self.order)

    @property
    def alignment(self) -> tuple[tuple[int, ...], ...] | None:
        """The indices of the source words that each output word is aligned with."""
        if self.segments is None:
            return None
        aligned: list[tuple[int, ...]] = [()] * len(self.target)
        for segment in self.segments:
            for word in segment.target:
                aligned[word] = segment.source
        return tuple(aligned)

    def draw(self) -> str:
        """The tree, the reordered sentence and the segments, as text."""
        parts = []
        if self.derivation is not None:
            parts.append(self.derivation.draw(self.source))
        if self.reordered is not None:
            parts.append("reordered: " + " ".join(self.reordered))
        if self.segments is not None:
            source, target = bracketed(self.segments, self.source, self.target)
            parts.append(f"source:    {source}\noutput:    {target}")
        return "\n".join(parts)


@dataclass(frozen=True)
class Prediction(ShownInNotebooks):
    """An output for one sentence.

    Attributes:
        tokens: the words of the output.
        score: its log-probability; NaN if it was not asked for, and would have taken a sum over all orders.
        alternatives: the next best outputs, if ``n_best`` is above 1. If an inverse model reranks outputs, their scores
            need not decrease.
        explanation: how the model got there, if it was asked to explain.
        unknown: the source words (or characters) that the model has never seen, so that the output may be a guess.
        unmet: the source phrases of a glossary whose required output it does not contain.
    """

    tokens: tuple[str, ...]
    score: float
    alternatives: tuple["Prediction", ...] = ()
    explanation: Explanation | None = None
    unknown: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        return " ".join(self.tokens)

    def __str__(self) -> str:
        return self.text


def split_words(sentences: Sequence[str | Sequence[str]], what: str = "sentence") -> list[list[str]]:
    """Split strings at white space; lists of words are taken as they are.

    >>> split_words(["how many states ?", ["how", "many"]])
    [['how', 'many', 'states', '?'], ['how', 'many']]
    """
    if isinstance(sentences, str):
        raise ValueError(
            f"expected a list of {what}s, but got one string; write [{excerpt(sentences, max_length=40)}]."
        )
    _require_several(sentences, what)
    return [split_sentence(sentence, f"{what} {index}") for index, sentence in enumerate(sentences)]


def split_sentence(sentence: str | Sequence[str], what: str = "the sentence") -> list[str]:
    """Split a string at white space; a list of words is taken as it is.

    Raises:
        TypeError: it is neither a string nor a list of strings.
    """
    words = sentence.split() if isinstance(sentence, str) else sentence
    if not isinstance(words, Iterable) or not all(isinstance(word, str) for word in words):
        raise TypeError(f"{what} should be a string or a list of words, but is {excerpt(sentence, 40)}.")
    return list(words)


def split_pairs(
    pairs: Iterable[tuple[str | Sequence[str], str | Sequence[str]]],
) -> list[tuple[list[str], list[str]]]:
    """Split the sentences and outputs of pairs into words.

    >>> split_pairs([("how many ?", "count")])
    [(['how', 'many', '?'], ['count'])]

    Raises:
        TypeError: something is not a pair of a sentence and an output.
    """
    _require_several(pairs, "pair")
    split = []
    for index, pair in enumerate(pairs):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise TypeError(
                f"expected pairs of a sentence and an output, such as [('a b', 'B A')], but pair {index} is "
                f"{excerpt(pair, 40)}."
            )
        source, target = pair
        split.append(
            (
                split_sentence(source, f"the sentence of pair {index}"),
                split_sentence(target, f"the output of pair {index}"),
            )
        )
    return split


def _require_several(values: object, what: str) -> None:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"expected a list of {what}s, but got {excerpt(values, 40)}.")


def require_not_empty(sentences: Sequence[Sequence[object]]) -> None:
    """Require at least one word, or one token id, in every sentence."""
    for index, sentence in enumerate(sentences):
        if not sentence:
            raise ValueError(f"sentence {index} is empty, but a model needs at least one word. Leave it out.")
