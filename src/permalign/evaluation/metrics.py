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

A metric is a function from judged predictions to a number, higher for better predictions; to None if it does not apply
to them; or to a `CorpusScore`, a number with a signature. Plug-ins can add others; see `permalign.plugins`.
"""

from collections.abc import Sequence

from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.sacrebleu_metrics import CorpusScore, TranslationMetric, corpus_score
from permalign.plugins import METRICS, PluginError
from permalign.tasks.base import Task

TRANSLATION_METRICS: tuple[TranslationMetric, ...] = ("bleu", "chrf")
GENERAL_METRICS = tuple(name for name in METRICS.built_in if name not in TRANSLATION_METRICS)


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
    predictions: Sequence[JudgedPrediction], *, translation: bool = False, others: Sequence[str] = ()
) -> tuple[dict[str, float], dict[str, str]]:
    """Compute all metrics that apply; returns the metrics, and the signatures of those that have one, by name.

    Args:
        predictions: the judged predictions, at least one.
        translation: whether to compute BLEU and chrF.
        others: the names of further metrics, such as those of plug-ins.

    Raises:
        PluginError: a metric does not exist, or its plug-in does not return a number.
    """
    if not predictions:
        raise ValueError("predictions is empty; expected at least one.")
    metrics: dict[str, float] = {}
    signatures: dict[str, str] = {}
    for name in dict.fromkeys((*GENERAL_METRICS, *(TRANSLATION_METRICS if translation else ()), *others)):
        score = METRICS.load(name)(predictions)
        if isinstance(score, CorpusScore):
            metrics[name], signatures[name] = score
        elif isinstance(score, int | float):
            metrics[name] = float(score)
        elif score is not None:
            raise PluginError(f"the metric {name!r} returned {score!r}, but must return a number or None.")
    return metrics, signatures


def exact_match(predictions: Sequence[JudgedPrediction]) -> float:
    """The share of predictions that are entirely correct."""
    return share([prediction.correct for prediction in predictions])


def execution_accuracy(predictions: Sequence[JudgedPrediction]) -> float | None:
    """The share of predictions whose execution gives the target's result; None unless all can be executed."""
    return _share_if_known([prediction.executes_right for prediction in predictions])


def well_formed(predictions: Sequence[JudgedPrediction]) -> float | None:
    """The share of predictions that the task's grammar accepts; None if there is no grammar."""
    return _share_if_known([prediction.well_formed for prediction in predictions])


def bleu(predictions: Sequence[JudgedPrediction]) -> CorpusScore:
    """BLEU, by sacrebleu."""
    return _corpus_score("bleu", predictions)


def chrf(predictions: Sequence[JudgedPrediction]) -> CorpusScore:
    """The chrF score, by sacrebleu."""
    return _corpus_score("chrf", predictions)


def _corpus_score(metric: TranslationMetric, predictions: Sequence[JudgedPrediction]) -> CorpusScore:
    outputs = [prediction.text for prediction in predictions]
    return corpus_score(metric, outputs, [prediction.reference for prediction in predictions])


def _share_if_known(judgements: Sequence[bool | None]) -> float | None:
    known = [judgement for judgement in judgements if judgement is not None]
    return share(known) if len(known) == len(judgements) else None


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
