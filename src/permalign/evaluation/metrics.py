"""Metrics of judged predictions, all in percent.

``exact_match``
    How many predictions are right as a whole.
``token_accuracy``
    Output and target are laid side by side from the left; the longer of the two says how many places a pair
    has. Of all places of all pairs, the share where both have the same token. So what is missing and what is
    too much counts as wrong, and long examples count for more.
``execution_accuracy``
    How many of all predictions, executed, give what the target gives. An prediction that cannot be read or executed
    is wrong.
``well_formed``
    How many predictions the task's grammar reads, right or wrong.
``bleu``, ``chrf``
    By sacrebleu, see `permalign.evaluation.sacrebleu_metrics`.
"""

from collections.abc import Sequence

from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.sacrebleu_metrics import TranslationMetric, corpus_score
from permalign.tasks.base import Task

TRANSLATION_METRICS: tuple[TranslationMetric, ...] = ("bleu", "chrf")


def main_metric(task: Task) -> str:
    """The metric that says which of two models is better: ``bleu`` for translation, else ``exact_match``.

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
    """The metrics that the predictions allow, in reading order, and sacrebleu's signatures.

    Args:
        predictions: at least one.
        translation: whether BLEU and chrF make sense for them.
    """
    if not predictions:
        raise ValueError("there are no predictions to measure; give at least one.")
    metrics = {
        "exact_match": share([prediction.correct for prediction in predictions]),
        "token_accuracy": token_accuracy(predictions),
    }
    judgements = {
        "execution_accuracy": [prediction.executes_right for prediction in predictions],
        "well_formed": [prediction.well_formed for prediction in predictions],
    }
    for name, judged in judgements.items():
        known = [one for one in judged if one is not None]
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
    """How many are true, in percent.

    >>> share([True, False, True, True])
    75.0
    """
    return 100.0 * sum(judgements) / len(judgements)


def token_accuracy(predictions: Sequence[JudgedPrediction]) -> float:
    """The share of places with the right token, in percent; see the module for what a place is.

    >>> from permalign.tasks.base import Example
    >>> example = Example(("x",), ("a", "b", "c"), "0")
    >>> outputs = [("a", "b"), ("a", "b", "c", "d")]
    >>> token_accuracy([JudgedPrediction(example, output, 0.0, False) for output in outputs])
    71.42857142857143
    """
    right = places = 0
    for prediction in predictions:
        target = prediction.example.target
        right += sum(written == wanted for written, wanted in zip(prediction.tokens, target, strict=False))
        places += max(len(prediction.tokens), len(target))
    return 100.0 * right / max(places, 1)
