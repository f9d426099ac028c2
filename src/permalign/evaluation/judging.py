"""Judge predictions: exact match, execution and well-formedness."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from permalign.tasks.base import Example, Task


@runtime_checkable
class Executes(Protocol):
    """A task whose outputs are programs that can be executed."""

    def gives_same_answer(self, example: Example, output: Sequence[str]) -> bool:
        """Whether executing the output gives the same result as executing the example's target."""
        ...


@dataclass(frozen=True, slots=True)
class JudgedPrediction:
    """A model's output for an example, and how its task judges it.

    Attributes:
        example: the example.
        tokens: the tokens of the output.
        score: the log-probability of the output; -inf if the constraint allowed none, NaN if it was not asked for.
        correct: whether the task accepts the output (exact match).
        executes_right: whether executing the output gives the same result as executing the target; None if the task
            cannot execute programs.
        well_formed: whether the output is a program of the task's grammar; None if the task has no grammar.
    """

    example: Example
    tokens: tuple[str, ...]
    score: float
    correct: bool
    executes_right: bool | None = None
    well_formed: bool | None = None

    @property
    def text(self) -> str:
        """The tokens of the output, joined by spaces."""
        return " ".join(self.tokens)

    @property
    def reference(self) -> str:
        """The tokens of the target, joined by spaces."""
        return " ".join(self.example.target)


def judge(
    task: Task, example: Example, tokens: Sequence[str], score: float, *, execute: bool = True
) -> JudgedPrediction:
    """Judge an output for an example.

    Raises:
        DataError: the database that programs are executed on is missing; pass ``execute=False`` to skip execution.
    """
    output = tuple(tokens)
    executes = executes_right(task, example, output) if execute and isinstance(task, Executes) else None
    return JudgedPrediction(
        example, output, score, task.is_correct(example, output), executes, well_formed(task, output)
    )


def well_formed(task: Task, tokens: Sequence[str]) -> bool | None:
    """Whether the task's grammar accepts the tokens; None if the task has no grammar."""
    if task.grammar is None:
        return None
    try:
        task.grammar.read(tokens)
    except ValueError:
        return False
    return True


def executes_right(task: Executes, example: Example, tokens: Sequence[str]) -> bool:
    """Whether executing an output gives the target's result; False if it cannot be executed."""
    try:
        return task.gives_same_answer(example, tokens)
    except ValueError:
        return False
