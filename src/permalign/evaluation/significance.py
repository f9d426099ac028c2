"""Whether one system is better than another, or only luckier.

Right and wrong predictions are compared by a **paired permutation test**. If two systems were equally good, it would
not matter which of them gave which of the two predictions to an example. So let d_i be the difference of the
systems on example i and T = sum_i d_i; under the null hypothesis every choice of signs s in {-1, 1}^n gives an
equally probable T(s) = sum_i s_i d_i, and

    p = P(|T(s)| >= |T|),

by scipy: exactly where there are few enough choices, else from random ones. Of several seeds of a system, d_i is
the difference of the means over seeds, so the test speaks of the examples (would it hold for others of the kind?)
and the deviation beside it of the seeds (would it hold for others?). Examples with d_i = 0 change nothing, and are
left out.

BLEU and chrF are no means over examples; for them sacrebleu has paired approximate randomisation and a paired
bootstrap. Each seed of one system is compared with the seed of the other that stands in the same place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from permalign.errors import PermalignError
from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.metrics import TRANSLATION_METRICS, compute_metrics
from permalign.evaluation.sacrebleu_metrics import TranslationMetric, make_metric

System = Sequence[Sequence[JudgedPrediction]]
"""The predictions of each seed of a system to the same examples."""

TranslationTest = Literal["randomisation", "bootstrap"]
JUDGEMENT_OF: Mapping[str, Callable[[JudgedPrediction], bool | None]] = {
    "exact_match": lambda prediction: prediction.correct,
    "execution_accuracy": lambda prediction: prediction.executes_right,
}
RESAMPLES = 10_000


@dataclass(frozen=True)
class Spread:
    """A metric over the seeds of a system.

    >>> spread = Spread((80.0, 90.0, 85.0))
    >>> spread.mean, spread.deviation
    (85.0, 5.0)
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation (of n - 1); None for one seed."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Comparison:
    """Two systems by one metric.

    Attributes:
        metric: its name.
        first: the first system's values.
        second: the second's.
        p_values: one for both systems; or, for BLEU and chrF, one for each pair of seeds; none where no test fits.
        test: how they came about.
    """

    metric: str
    first: Spread
    second: Spread
    p_values: tuple[float, ...] = ()
    test: str = ""

    @property
    def difference(self) -> float:
        """How much better the second is, in points."""
        return self.second.mean - self.first.mean


def compare(
    first: System,
    second: System,
    *,
    translation: bool = False,
    test: TranslationTest = "randomisation",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Comparison, ...]:
    """Compare two systems by every metric that both have.

    Args:
        first: predictions of each seed.
        second: the same for the other system, to the same examples.
        translation: whether BLEU and chrF make sense for them.
        test: which of sacrebleu's tests.
        resamples: how many choices of signs to draw where there are too many; also how often sacrebleu draws.
        seed: of what is drawn for right and wrong predictions; sacrebleu has its own, in ``SACREBLEU_SEED``.

    Raises:
        ValueError: the predictions are not to the same examples, or there are too few.
    """
    require_same_examples([*first, *second])
    values = [
        [compute_metrics(predictions, translation=translation)[0] for predictions in system]
        for system in (first, second)
    ]
    shared = [
        name for name in values[0][0] if all(name in metrics for system in values for metrics in system)
    ]
    comparisons = []
    for name in shared:
        one, other = (Spread(tuple(metrics[name] for metrics in system)) for system in values)
        p_values: tuple[float, ...] = ()
        how = ""
        if name in JUDGEMENT_OF:
            p_values = (permutation_test(*_judged(first, second, name), resamples=resamples, seed=seed),)
            how = "paired permutation test"
        elif name in TRANSLATION_METRICS:
            metric: TranslationMetric = "bleu" if name == "bleu" else "chrf"
            p_values = translation_test(metric, first, second, test=test, resamples=resamples)
            how = f"sacrebleu's paired {'approximate randomisation' if test == 'randomisation' else 'bootstrap'}"
        comparisons.append(Comparison(name, one, other, p_values, how))
    return tuple(comparisons)


def permutation_test(
    first: Sequence[Sequence[bool]],
    second: Sequence[Sequence[bool]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> float:
    """The two-sided p-value of the paired permutation test; see the module.

    Args:
        first: for each seed, whether each example was answered right.
        second: the same for the other system.
        resamples: at most so many choices of signs; all of them are tried if 2^n is not more.
        seed: of the drawing.

    >>> permutation_test([[True, True, True, True, False]], [[False, False, False, False, False]])
    0.125
    """
    try:
        import numpy
        from scipy.stats import permutation_test as scipy_permutation_test
    except ImportError:
        raise PermalignError('The permutation test needs scipy: pip install "permalign[training]".') from None
    # Whole numbers, (seeds of second) * (right in first) - ..., so that equal sums are equal.
    right = [numpy.array(system, dtype=int).sum(0) for system in (first, second)]
    differences = len(second) * right[0] - len(first) * right[1]
    differences = differences[differences != 0].astype(float)
    if len(differences) < 2:
        return 1.0  # both signs of one difference are as far from zero
    result = scipy_permutation_test(
        (differences,),
        lambda signed, axis: signed.sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=1000,
        rng=numpy.random.default_rng(seed),
    )
    return float(result.pvalue)


def translation_test(
    metric: TranslationMetric,
    first: System,
    second: System,
    *,
    test: TranslationTest = "randomisation",
    resamples: int = RESAMPLES,
) -> tuple[float, ...]:
    """sacrebleu's p-value for each pair of seeds; identical outputs have 1."""
    if len(first) != len(second):
        raise ValueError(
            f"one system has {len(first)} seeds and the other {len(second)}, but {metric} compares them in pairs. "
            "Give as many of each."
        )
    return tuple(_paired_test(metric, *pair, test, resamples) for pair in zip(first, second, strict=True))


def _paired_test(
    metric: TranslationMetric,
    first: Sequence[JudgedPrediction],
    second: Sequence[JudgedPrediction],
    test: TranslationTest,
    resamples: int,
) -> float:
    outputs = [[prediction.text for prediction in predictions] for predictions in (first, second)]
    if outputs[0] == outputs[1]:
        return 1.0  # sacrebleu counts only larger differences than the one seen, so 0 would be the least probable
    from sacrebleu.significance import PairedTest

    systems: list[tuple[str, Sequence[str]]] = [("first", outputs[0]), ("second", outputs[1])]
    references = [[prediction.reference for prediction in first]]
    kind = "ar" if test == "randomisation" else "bs"
    _, scores = PairedTest(systems, {metric: make_metric(metric)}, references, kind, resamples)()
    (results,) = (results for name, results in scores.items() if name != "System")
    result = results[1]
    assert not isinstance(result, str)
    assert result.p_value is not None
    return result.p_value


def require_same_examples(all_predictions: System) -> None:
    """A `ValueError` unless all prediction the same examples in the same order."""
    first = all_predictions[0]
    for place, predictions in enumerate(all_predictions[1:], start=2):
        if len(predictions) != len(first):
            raise ValueError(
                f"run 1 has predictions for {len(first)} examples, but run {place} for {len(predictions)}; only "
                "predictions for the same examples can be compared."
            )
        for one, other in zip(first, predictions, strict=True):
            if (one.example.source, one.example.target) != (other.example.source, other.example.target):
                raise ValueError(
                    f"example {one.example.id} of run 1 is not example {other.example.id} of run {place} "
                    f"({' '.join(one.example.source)[:60]!r} and {' '.join(other.example.source)[:60]!r}); only "
                    "predictions for the same examples can be compared."
                )


def _judged(first: System, second: System, metric: str) -> list[list[list[bool]]]:
    """Right or wrong, by system, seed and example."""
    judgement = JUDGEMENT_OF[metric]
    return [
        [[bool(judgement(prediction)) for prediction in predictions] for predictions in system]
        for system in (first, second)
    ]
