"""From a model and examples to judged predictions and their metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from permalign.errors import DataError
from permalign.evaluation.judging import Executes, JudgedPrediction, judge
from permalign.evaluation.metrics import compute_metrics, is_translation
from permalign.tasks.base import Example, Task

if TYPE_CHECKING:
    from permalign.model import Transducer


@dataclass(frozen=True)
class Report:
    """How good some predictions are.

    Attributes:
        metrics: in percent, by name, only those the task has; see `permalign.evaluation.metrics`.
        signatures: how sacrebleu came to its metrics, by name.
        predictions: one for each example, in the order of the examples.
        notes: what to know before comparing, such as a metric that had to be left out.
    """

    metrics: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict)
    predictions: tuple[JudgedPrediction, ...] = ()
    notes: tuple[str, ...] = ()


def evaluate(
    model: "Transducer",
    task: Task,
    examples: Sequence[Example],
    *,
    beam: int = 1,
    constrained: bool = False,
    batch_size: int = 64,
) -> Report:
    """Answer the examples and judge the predictions.

    The model is left as it was, in training mode or not.

    Args:
        model: what predictions.
        task: what judges.
        examples: of the task; at least one.
        beam: how many prefixes to keep; 1 is greedy search.
        constrained: whether to write only what the task's grammar reads.
        batch_size: how many sentences to work on at once; it does not change the predictions.

    Raises:
        ValueError: there are no examples, or no grammar to keep to.
    """
    if not examples:
        raise ValueError("there are no examples to evaluate on; give at least one.")
    if constrained and task.grammar is None:
        raise ValueError(
            f"{task.name} has no grammar, so outputs cannot be kept to it. Leave constrained out."
        )
    predictions = model.predict(
        [example.source for example in examples],
        beam=beam,
        constraint=task.grammar if constrained else None,
        batch_size=batch_size,
    )
    return make_report(
        task,
        [
            (example, prediction.tokens, prediction.score)
            for example, prediction in zip(examples, predictions, strict=True)
        ],
    )


def make_report(task: Task, outputs: Sequence[tuple[Example, Sequence[str], float]]) -> Report:
    """Judge outputs, given with their examples and scores, wherever they come from."""
    notes = list(_missing_for_execution(task, outputs))
    predictions = tuple(judge(task, *output, execute=not notes) for output in outputs)
    metrics, signatures = compute_metrics(predictions, translation=is_translation(task))
    return Report(metrics, signatures, predictions, tuple(notes))


def _missing_for_execution(
    task: Task, outputs: Sequence[tuple[Example, Sequence[str], float]]
) -> tuple[str, ...]:
    """Why nothing can be executed, if so: the facts may not be there, and all else can still be measured."""
    if isinstance(task, Executes) and outputs:
        example = outputs[0][0]
        try:
            task.gives_same_answer(example, example.target)
        except DataError as error:
            return (f"execution accuracy is left out: {error}",)
        except ValueError:
            return ()
    return ()
