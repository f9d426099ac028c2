"""The base class of tasks: examples in named splits, and what counts as correct."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from permalign.tasks.grammar import Grammar


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence and its output, both as tokens.

    Attributes:
        source: the tokens of the input.
        target: the tokens of the expected output.
        id: the name of the example within its task.
        meta: further information, such as entities, depth or authors.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    id: str
    meta: Mapping[str, object] = field(default_factory=dict)


class Task(ABC):
    """Named splits of examples, and what counts as a correct output for each.

    A split's name is ``condition/part``: ``iid/train``, ``len/test``.

    Attributes:
        name: the name of the task on the command line and in configurations.
        description: a description of one line.
        metric: the metrics that results are reported in.
    """

    name: str
    description: str
    metric: str = "exact match"

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks for whoever compares results, such as unpublished splits or lines left out."""
        return ()

    @property
    def grammar(self) -> Grammar | None:
        """The grammar of the outputs, for constrained decoding; None if there is none."""
        return None

    @property
    def entities(self) -> Mapping[str, str]:
        """The entities that sentences may mention, for entity linking: the kind of each by its name."""
        return {}

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in reading order."""

    @abstractmethod
    def examples(self, split: str) -> Sequence[Example]:
        """The examples of a split, always in the same order; an unknown name raises a `ValueError`."""

    def answer(self, example: Example, output: Sequence[str]) -> str:
        """The complete answer for an output, such as a program with its brackets and entities restored.

        Raises:
            ValueError: the output cannot be completed.
        """
        return " ".join(output)

    def is_correct(self, example: Example, output: Sequence[str]) -> bool:
        """Whether the output is the example's target (exact match)."""
        return tuple(output) == example.target

    def unknown_split(self, split: str) -> ValueError:
        """The error for an unknown split."""
        return ValueError(f"{self.name} has no split {split!r}; choose one of {', '.join(self.splits)}.")
