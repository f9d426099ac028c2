"""Statistics of a task's splits: sizes, lengths, vocabulary sizes, and the share of unseen tokens."""

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
        unseen: the share of tokens that do not occur in the training split of the same condition; None if the condition
            has no training split.
    """

    mean_length: float
    max_length: int
    vocab_size: int
    unseen: float | None


@dataclass(frozen=True, slots=True)
class SplitStatistics:
    """The size of a split, and statistics of its sources and targets."""

    split: str
    examples: int
    source: SideStatistics
    target: SideStatistics


def task_statistics(task: Task) -> list[SplitStatistics]:
    """The statistics of every split."""
    training_vocabularies: dict[str, tuple[set[str], set[str]]] = {}
    statistics = []
    for split in task.splits:
        examples = task.examples(split)
        condition, _, part = split.partition("/")
        if part == "train":
            training_vocabularies[condition] = _vocabularies(examples)
        sources, targets = training_vocabularies.get(condition, (None, None))
        statistics.append(
            SplitStatistics(
                split,
                len(examples),
                _side([example.source for example in examples], sources),
                _side([example.target for example in examples], targets),
            )
        )
    return statistics


def _vocabularies(examples: Iterable[Example]) -> tuple[set[str], set[str]]:
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
