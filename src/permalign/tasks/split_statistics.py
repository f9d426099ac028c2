"""Statistics of a task's splits: sizes, lengths, vocabularies, and the share of unseen tokens."""

from collections.abc import Iterable
from dataclasses import dataclass

from permalign.tasks.base import Example, Task


@dataclass(frozen=True, slots=True)
class SideStatistics:
    """Statistics of the sources or the targets of a split.

    Attributes:
        mean_length: the average number of tokens in a sentence.
        max_length: the number of tokens in the longest sentence.
        vocab_size: the number of distinct tokens.
        unseen: the share of tokens that do not occur in the condition's training split; None if it has none.
    """

    mean_length: float
    max_length: int
    vocab_size: int
    unseen: float | None


@dataclass(frozen=True, slots=True)
class SplitStatistics:
    """Statistics of one split."""

    split: str
    examples: int
    source: SideStatistics
    target: SideStatistics


def task_statistics(task: Task) -> list[SplitStatistics]:
    """The statistics of every split."""
    known: dict[str, tuple[set[str], set[str]]] = {}
    result = []
    for split in task.splits:
        examples = task.examples(split)
        condition, _, part = split.partition("/")
        if part == "train":
            known[condition] = _types(examples)
        sources, targets = known.get(condition, (None, None))
        result.append(
            SplitStatistics(
                split,
                len(examples),
                _side([example.source for example in examples], sources),
                _side([example.target for example in examples], targets),
            )
        )
    return result


def _types(examples: Iterable[Example]) -> tuple[set[str], set[str]]:
    sources: set[str] = set()
    targets: set[str] = set()
    for example in examples:
        sources.update(example.source)
        targets.update(example.target)
    return sources, targets


def _side(sentences: list[tuple[str, ...]], known: set[str] | None) -> SideStatistics:
    tokens = [token for sentence in sentences for token in sentence]
    unseen = None if known is None else sum(token not in known for token in tokens) / max(len(tokens), 1)
    return SideStatistics(
        mean_length=len(tokens) / max(len(sentences), 1),
        max_length=max((len(sentence) for sentence in sentences), default=0),
        vocab_size=len(set(tokens)),
        unseen=unseen,
    )
