"""How large a task's splits are, how long their sentences, and how much of their words training shows."""

from collections.abc import Iterable
from dataclasses import dataclass

from permalign.tasks.base import Example, Task


@dataclass(frozen=True, slots=True)
class SideStatistics:
    """The sources or the targets of a split.

    Attributes:
        mean_length: tokens in a sentence, on average.
        longest: tokens in the longest sentence.
        vocabulary: how many different tokens there are.
        unseen: the share of running tokens that the condition's train part does not have; nothing where the
            condition has no train part.
    """

    mean_length: float
    longest: int
    vocabulary: int
    unseen: float | None


@dataclass(frozen=True, slots=True)
class SplitStatistics:
    """One split of a task."""

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
    running = [token for sentence in sentences for token in sentence]
    unseen = None if known is None else sum(token not in known for token in running) / max(len(running), 1)
    return SideStatistics(
        mean_length=len(running) / max(len(sentences), 1),
        longest=max((len(sentence) for sentence in sentences), default=0),
        vocabulary=len(set(running)),
        unseen=unseen,
    )
