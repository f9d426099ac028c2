"""The base class of tasks: examples in named splits, and whether an output is correct."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from permalign.errors import UsageError
from permalign.tasks.grammar import Grammar


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence and its expected output, both as tokens.

    Attributes:
        source: the tokens of the sentence.
        target: the tokens of the expected output.
        id: the identifier of the example, unique within its task.
        meta: further information, such as entities, depth or authors.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    id: str
    meta: Mapping[str, object] = field(default_factory=dict)


class Task(ABC):
    """A dataset with named splits, which also judges whether outputs are correct.

    The name of a split is ``condition/part``, such as ``iid/train`` or ``len/test``.

    Attributes:
        name: the name of the task on the command line and in configurations.
        description: one line that describes the task.
        metric: the metrics by which results are reported.
    """

    name: str
    description: str
    metric: str = "exact match"

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks that matter when results are compared, such as unpublished splits or lines that were left out."""
        return ()

    @property
    def grammar(self) -> Grammar | None:
        """The grammar of the outputs, for constrained decoding; None if the task has no grammar."""
        return None

    def generalize_grammar(self, grammar: Grammar) -> Grammar:
        """Extend the grammar of some programs by the rules that follow from it, without a look at other programs.

        Raises:
            UsageError: the task does not say which rules follow from others.
        """
        raise UsageError(
            f"{self.name} does not say how its grammar generalizes. Choose the grammar of the training data, or that "
            "of the task."
        )

    @property
    def entities(self) -> Mapping[str, str]:
        """The entities that sentences may mention, for entity linking: a mapping from names to kinds."""
        return {}

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The names of all splits."""

    @abstractmethod
    def examples(self, split: str) -> Sequence[Example]:
        """The examples of a split, always in the same order; an unknown name raises a `ValueError`."""

    def answer(self, example: Example, output: Sequence[str]) -> str:
        """The complete answer that an output stands for, such as a program with its brackets and entities restored.

        Raises:
            ValueError: the output does not stand for an answer.
        """
        return " ".join(output)

    def is_correct(self, example: Example, output: Sequence[str]) -> bool:
        """Whether the output equals the target of the example (exact match)."""
        return tuple(output) == example.target

    def unknown_split(self, split: str) -> ValueError:
        """The error to raise for an unknown split."""
        return ValueError(f"{self.name} has no split {split!r}; choose one of {', '.join(self.splits)}.")
