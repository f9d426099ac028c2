"""What every task is made of: examples in named splits, and a judgement of answers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from permalign.tasks.grammar import Grammar


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence and its output, both as tokens.

    Attributes:
        source: the tokens a model reads.
        target: the tokens it should write.
        id: names the example within its task.
        meta: whatever else the task knows about it (its entities, its depth, who wrote it).
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    id: str
    meta: Mapping[str, object] = field(default_factory=dict)


class Task(ABC):
    """Named splits of examples, and what counts as a correct answer to each.

    A split's name is ``condition/part``: ``iid/train``, ``len/test``.

    Attributes:
        name: what the command line calls the task.
        description: what it is about, in one line.
        metric: what its results are reported in.
    """

    name: str
    description: str
    metric: str = "exact match"

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before comparing results: a split that is not the published one, lines left out."""
        return ()

    @property
    def grammar(self) -> Grammar | None:
        """The grammar of the outputs, for decoding that keeps to it; `None` if there is none."""
        return None

    @property
    def entities(self) -> Mapping[str, str]:
        """Names that its sentences may have, each with a word for the kind of what it names; none if it knows none."""
        return {}

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names `examples` takes, in reading order."""

    @abstractmethod
    def examples(self, split: str) -> Sequence[Example]:
        """The examples of one split, always in the same order; an unknown name is a `ValueError`."""

    def answer(self, example: Example, output: Sequence[str]) -> str:
        """The full answer that a model's output stands for: brackets, entities and all.

        Raises:
            ValueError: the output stands for no answer.
        """
        return " ".join(output)

    def is_correct(self, example: Example, output: Sequence[str]) -> bool:
        """Whether the output is the example's target (exact match)."""
        return tuple(output) == example.target

    def unknown_split(self, split: str) -> ValueError:
        """The error for a name that is none of `splits`."""
        return ValueError(f"{self.name} has no split {split!r}; choose one of {', '.join(self.splits)}.")
