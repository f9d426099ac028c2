"""Evaluate a model on examples: predict and judge outputs, and compute metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from permalign.errors import DataError
from permalign.evaluation.judging import Executes, JudgedPrediction, judge
from permalign.evaluation.metrics import compute_metrics, is_translation
from permalign.tasks.base import Example, Task

if TYPE_CHECKING:
    from permalign.models.base import Model


@dataclass(frozen=True)
class Report:
    """The result of an evaluation.

    Attributes:
        metrics: the metrics that apply to the task, in percent, by name; see `permalign.evaluation.metrics`.
        signatures: the sacrebleu signatures of BLEU and chrF, by the name of the metric.
        predictions: the judged prediction for each example, in the order of the examples.
        notes: remarks that matter when results are compared, such as a metric that had to be left out.
    """

    metrics: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict)
    predictions: tuple[JudgedPrediction, ...] = ()
    notes: tuple[str, ...] = ()


def evaluate(
    model: "Model",
    task: Task,
    examples: Sequence[Example],
    *,
    beam: int = 1,
    length_penalty: float = 0.0,
    constrained: bool = False,
    batch_size: int = 64,
) -> Report:
    """Predict an output for each example, and judge it.

    The mode of the model (training or evaluation) is not changed.

    Args:
        model: the model to evaluate.
        task: the task that judges the predictions.
        examples: examples of the task, at least one.
        beam: the beam size; 1 is greedy search.
        length_penalty: the exponent of the length by which log-probabilities are divided when outputs are compared.
        constrained: whether to allow only outputs of the task's grammar.
        batch_size: the number of sentences per batch; it does not change the predictions.

    Raises:
        ValueError: there are no examples, or ``constrained`` is set and the task has no grammar.
    """
    if not examples:
        raise ValueError("examples is empty; expected at least one.")
    if constrained and task.grammar is None:
        raise ValueError(
            f"{task.name} has no grammar that could constrain the outputs. Leave out constrained."
        )
    predictions = model.predict(
        [example.source for example in examples],
        beam=beam,
        length_penalty=length_penalty,
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
    """Judge outputs, which are given as triples of example, output tokens and score, and compute their metrics."""
    notes = list(_missing_for_execution(task, outputs))
    predictions = tuple(judge(task, *output, execute=not notes) for output in outputs)
    metrics, signatures = compute_metrics(predictions, translation=is_translation(task))
    return Report(metrics, signatures, predictions, tuple(notes))


def _missing_for_execution(
    task: Task, outputs: Sequence[tuple[Example, Sequence[str], float]]
) -> tuple[str, ...]:
    """A note if programs cannot be executed because a database is missing, so that a metric is left out."""
    if isinstance(task, Executes) and outputs:
        example = outputs[0][0]
        try:
            task.gives_same_answer(example, example.target)
        except DataError as error:
            return (f"no execution accuracy: {error}",)
        except ValueError:
            return ()
    return ()
