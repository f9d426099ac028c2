"""Metrics of judged predictions, all in percent.

``exact_match``
    The share of predictions that are entirely correct.
``token_accuracy``
    The share of positions at which output and target have the same token. An example has as many positions as the
    longer of output and target, so that missing and superfluous tokens count as wrong. The positions of all examples
    are counted together, so that long examples have more weight.
``execution_accuracy``
    The share of predictions whose execution gives the target's result. A prediction that cannot be parsed or
    executed is wrong.
``well_formed``
    The share of predictions that the task's grammar accepts, correct or not.
``bleu``, ``chrf``
    Computed by sacrebleu; see `permalign.evaluation.sacrebleu_metrics`.
"""

from collections.abc import Sequence

from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.sacrebleu_metrics import TranslationMetric, corpus_score
from permalign.tasks.base import Task

TRANSLATION_METRICS: tuple[TranslationMetric, ...] = ("bleu", "chrf")


def main_metric(task: Task) -> str:
    """The metric by which models are compared: ``bleu`` for translation, otherwise ``exact_match``.

    >>> from permalign.tasks.registry import get_task
    >>> main_metric(get_task("geoquery")), main_metric(get_task("en-ja"))
    ('exact_match', 'bleu')
    """
    return "bleu" if is_translation(task) else "exact_match"


def is_translation(task: Task) -> bool:
    """Whether the task's results are reported in BLEU."""
    return "bleu" in task.metric


def compute_metrics(
    predictions: Sequence[JudgedPrediction], *, translation: bool = False
) -> tuple[dict[str, float], dict[str, str]]:
    """Compute all metrics that apply; returns the metrics, and the sacrebleu signatures of BLEU and chrF, by name.

    Args:
        predictions: the judged predictions, at least one.
        translation: whether to compute BLEU and chrF.
    """
    if not predictions:
        raise ValueError("predictions is empty; expected at least one.")
    metrics = {
        "exact_match": share([prediction.correct for prediction in predictions]),
        "token_accuracy": token_accuracy(predictions),
    }
    judgements = {
        "execution_accuracy": [prediction.executes_right for prediction in predictions],
        "well_formed": [prediction.well_formed for prediction in predictions],
    }
    for name, judged in judgements.items():
        known = [judgement for judgement in judged if judgement is not None]
        if len(known) == len(judged):
            metrics[name] = share(known)
    signatures: dict[str, str] = {}
    for metric in TRANSLATION_METRICS if translation else ():
        metrics[metric], signatures[metric] = corpus_score(
            metric,
            [prediction.text for prediction in predictions],
            [prediction.reference for prediction in predictions],
        )
    return metrics, signatures


def share(judgements: Sequence[bool]) -> float:
    """The share of true values, in percent.

    >>> share([True, False, True, True])
    75.0
    """
    return 100.0 * sum(judgements) / len(judgements)


def token_accuracy(predictions: Sequence[JudgedPrediction]) -> float:
    """The share of positions with the correct token, in percent; see the docstring of the module.

    >>> from permalign.tasks.base import Example
    >>> example = Example(("x",), ("a", "b", "c"), "0")
    >>> outputs = [("a", "b"), ("a", "b", "c", "d")]
    >>> token_accuracy([JudgedPrediction(example, output, 0.0, False) for output in outputs])
    71.42857142857143
    """
    correct = positions = 0
    for prediction in predictions:
        target = prediction.example.target
        correct += sum(token == expected for token, expected in zip(prediction.tokens, target, strict=False))
        positions += max(len(prediction.tokens), len(target))
    return 100.0 * correct / max(positions, 1)
