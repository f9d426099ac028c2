"""Aligned segments: which source tokens wrote which output words."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    """Source tokens and the output words they wrote, both as indices; either may be empty.

    >>> Segment(source=(3, 4), target=(0,)).draw(["how", "many", "big", "the", "cities"], ["city"])
    'the cities → city'
    """

    source: tuple[int, ...]
    target: tuple[int, ...]

    def draw(self, source_words: Sequence[str], target_words: Sequence[str]) -> str:
        """The segment in words; an empty side is shown as ∅."""
        sides = ((self.source, source_words), (self.target, target_words))
        return " → ".join(" ".join(words[index] for index in indices) or "∅" for indices, words in sides)


def consecutive_segments(sources: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[Segment]:
    """Segments that write an output from left to right; each writes the number of words that its size says.

    >>> consecutive_segments([(1,), (0,)], [0, 2])
    [Segment(source=(1,), target=()), Segment(source=(0,), target=(0, 1))]
    """
    segments, word = [], 0
    for source, size in zip(sources, sizes, strict=True):
        segments.append(Segment(source, tuple(range(word, word + size))))
        word += size
    return segments


def bracketed(
    segments: Sequence[Segment], source_words: Sequence[str], target_words: Sequence[str]
) -> tuple[str, str]:
    """Source and target with brackets around aligned segments; the same number marks the two sides of a segment.

    Segments come in the order of the reordered source; an empty side of a segment is left out.

    >>> segments = [Segment((1, 0), (0,)), Segment((2,), (1, 2))]
    >>> source, target = bracketed(segments, ["states", "which", "border"], ["state", "next_to_2", "all"])
    >>> print(source)
    [which states]1 [border]2
    >>> print(target)
    [state]1 [next_to_2 all]2
    """
    sides: tuple[list[str], list[str]] = ([], [])
    for number, segment in enumerate(segments, start=1):
        pairs = ((segment.source, source_words), (segment.target, target_words))
        for side, (indices, words) in zip(sides, pairs, strict=True):
            if indices:
                side.append(f"[{' '.join(words[index] for index in indices)}]{number}")
    return " ".join(sides[0]), " ".join(sides[1])
