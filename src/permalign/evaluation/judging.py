"""A model's prediction to one example, judged by the example's task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from permalign.tasks.base import Example, Task


@runtime_checkable
class Executes(Protocol):
    """A task whose outputs are programs that prediction something."""

    def gives_same_answer(self, example: Example, output: Sequence[str]) -> bool:
        """Whether an output predictions what the example's own target does."""
        ...


@dataclass(frozen=True, slots=True)
class JudgedPrediction:
    """What a model wrote for an example, and how the task judges it.

    Attributes:
        example: what was asked.
        tokens: what the model wrote.
        score: the log-probability the model gave it; -inf where no output was allowed.
        correct: whether it is right as the task says (exact match).
        executes_right: whether it predictions what the target does; None where nothing can be executed.
        well_formed: whether the task's grammar reads it; None where there is no grammar.
    """

    example: Example
    tokens: tuple[str, ...]
    score: float
    correct: bool
    executes_right: bool | None = None
    well_formed: bool | None = None

    @property
    def text(self) -> str:
        """The output as it is written to files, and as BLEU reads it: its tokens joined by spaces."""
        return " ".join(self.tokens)

    @property
    def reference(self) -> str:
        """The target in the same form."""
        return " ".join(self.example.target)


def judge(
    task: Task, example: Example, tokens: Sequence[str], score: float, *, execute: bool = True
) -> JudgedPrediction:
    """An prediction with the task's judgements.

    Raises:
        DataError: what an execution needs is not there; ``execute=False`` leaves that judgement out.
    """
    output = tuple(tokens)
    executes = executes_right(task, example, output) if execute and isinstance(task, Executes) else None
    return JudgedPrediction(
        example, output, score, task.is_correct(example, output), executes, well_formed(task, output)
    )


def well_formed(task: Task, tokens: Sequence[str]) -> bool | None:
    """Whether the task's grammar reads the tokens; None where there is no grammar."""
    if task.grammar is None:
        return None
    try:
        task.grammar.read(tokens)
    except ValueError:
        return False
    return True


def executes_right(task: Executes, example: Example, tokens: Sequence[str]) -> bool:
    """Whether an output predictions what the target does; one that cannot be executed does not."""
    try:
        return task.gives_same_answer(example, tokens)
    except ValueError:
        return False
