"""What a model answers, and the reasons it can give."""

from collections.abc import Sequence
from dataclasses import dataclass

from permalign.errors import excerpt
from permalign.showing import ShownInNotebooks
from permalign.structures import Derivation, Segment, bracketed


@dataclass(frozen=True)
class Explanation(ShownInNotebooks):
    """How an output came about.

    Attributes:
        source: the source words as the model read them (pieces of words, if it reads those).
        target: the output's words likewise.
        order: the source word that stands at each place after reordering; None if the reordering is not discrete.
        derivation: the tree behind the order; None if it has none.
        segments: the source words behind each piece of the output; None for a head without alignments.
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
        """The source words behind each output word."""
        if self.segments is None:
            return None
        behind: list[tuple[int, ...]] = [()] * len(self.target)
        for segment in self.segments:
            for word in segment.target:
                behind[word] = segment.source
        return tuple(behind)

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
class Prediction:
    """An output for one sentence.

    Attributes:
        tokens: its words.
        score: its log-probability.
        alternatives: the next best outputs, if more than one was asked for. Where answers are read back, both ways rank
            them, and scores need not fall.
        explanation: how it came about, if that was asked for.
    """

    tokens: tuple[str, ...]
    score: float
    alternatives: tuple["Prediction", ...] = ()
    explanation: Explanation | None = None

    @property
    def text(self) -> str:
        """The words, joined by spaces."""
        return " ".join(self.tokens)

    def __str__(self) -> str:
        return self.text


def tokenised(sentences: Sequence[str | Sequence[str]], what: str = "sentence") -> list[list[str]]:
    """Sentences as words: text is cut at white space, lists of words are taken as they are.

    >>> tokenised(["how many states ?", ["how", "many"]])
    [['how', 'many', 'states', '?'], ['how', 'many']]
    """
    if isinstance(sentences, str):
        raise ValueError(
            f"expected a list of {what}s, but got one string; write [{excerpt(sentences, max_length=40)}]."
        )
    return [sentence.split() if isinstance(sentence, str) else list(sentence) for sentence in sentences]


def require_words(sentences: Sequence[Sequence[object]]) -> None:
    """No sentence may be empty."""
    for place, sentence in enumerate(sentences):
        if not sentence:
            raise ValueError(f"sentence {place} is empty, but a model needs at least one word. Leave it out.")
