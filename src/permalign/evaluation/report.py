"""Evaluate a model on examples: predict and judge outputs, and compute metrics."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from permalign.decoding.beam import SearchMethod
from permalign.errors import DataError
from permalign.evaluation.judging import Executes, JudgedPrediction, judge
from permalign.evaluation.metrics import compute_metrics, is_translation
from permalign.tasks.base import Example, Task
from permalign.tasks.grammar import Grammar
from permalign.text.codec import UnknownReport, report_unknown

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
        unknown: how many source tokens the model has never seen; None if no model was evaluated.
    """

    metrics: dict[str, float]
    signatures: dict[str, str] = field(default_factory=dict)
    predictions: tuple[JudgedPrediction, ...] = ()
    notes: tuple[str, ...] = ()
    unknown: UnknownReport | None = None


def evaluate(
    model: "Model",
    task: Task,
    examples: Sequence[Example],
    *,
    beam: int = 1,
    length_penalty: float = 0.0,
    constraint: Grammar | None = None,
    batch_size: int = 64,
    metrics: Sequence[str] = (),
    search: SearchMethod = "beam",
    scores: bool = True,
) -> Report:
    """Predict an output for each example, and judge it.

    The mode of the model (training or evaluation) is not changed.

    Args:
        model: the model to evaluate.
        task: the task that judges the predictions.
        examples: examples of the task, at least one.
        beam: the beam size; 1 is greedy search.
        length_penalty: the exponent of the length by which log-probabilities are divided when outputs are compared.
        constraint: the grammar of the outputs that are allowed; None to allow all outputs.
        batch_size: the number of sentences per batch; it does not change the predictions.
        metrics: the names of further metrics to compute, such as those of plug-ins.
        search: how outputs are searched; see `permalign.models.base.Model.predict`.
        scores: whether the scores of predictions are needed; see `permalign.models.base.Model.predict`.

    Raises:
        ValueError: there are no examples, or ``constraint`` is given and the model does not write words.
    """
    if not examples:
        raise ValueError("examples is empty; expected at least one.")
    predictions = model.predict(
        [example.source for example in examples],
        beam=beam,
        length_penalty=length_penalty,
        constraint=constraint,
        batch_size=batch_size,
        search=search,
        scores=scores,
    )
    report = make_report(
        task,
        [
            (example, prediction.tokens, prediction.score)
            for example, prediction in zip(examples, predictions, strict=True)
        ],
        metrics,
    )
    unknown = report_unknown(model.source, [example.source for example in examples])
    notes = (*report.notes, *([f"in the sources, {unknown}."] if unknown.unknown else []))
    return replace(report, notes=notes, unknown=unknown)


def make_report(
    task: Task, outputs: Sequence[tuple[Example, Sequence[str], float]], others: Sequence[str] = ()
) -> Report:
    """Judge outputs, which are given as triples of example, output tokens and score, and compute their metrics."""
    notes = list(_missing_for_execution(task, outputs))
    predictions = tuple(judge(task, *output, execute=not notes) for output in outputs)
    metrics, signatures = compute_metrics(predictions, translation=is_translation(task), others=others)
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
