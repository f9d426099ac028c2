"""Significance tests: whether the difference between two systems could be due to chance.

Exact match and execution accuracy are compared by a **paired permutation test**. Under the null hypothesis that both
systems are equally good, their predictions for an example can be exchanged. Let d_i be the difference of the systems on
example i, and T = sum_i d_i. Under the null hypothesis, all choices of signs s in {-1, 1}^n are equally probable, and
with T(s) = sum_i s_i d_i the p-value is

    p = P(|T(s)| >= |T|).

It is computed by scipy, exactly if there are few enough choices of signs, and otherwise from random ones. If systems
have several seeds, d_i is the difference of the means over seeds. So the test says whether the difference would hold
for other examples, and the standard deviation over seeds whether it would hold for other seeds. Examples with d_i = 0
do not change T(s), and are left out.

BLEU and chrF are not means over examples. For them, sacrebleu provides paired approximate randomization and a paired
bootstrap; the i-th seed of one system is compared with the i-th seed of the other. Tables are made from records, which
have no outputs, so `bleu_randomization_test` does approximate randomization from the statistics of sentences, as a
permutation test of the means over seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from permalign.errors import PermalignError
from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.metrics import TRANSLATION_METRICS, compute_metrics
from permalign.evaluation.sacrebleu_metrics import (
    BLEU_ORDER,
    BleuStatistics,
    TranslationMetric,
    make_metric,
)

if TYPE_CHECKING:
    import numpy

System = Sequence[Sequence[JudgedPrediction]]
"""For each seed of a system, its predictions for the same examples."""

TranslationTest = Literal["randomization", "bootstrap"]
JUDGEMENT_OF: Mapping[str, Callable[[JudgedPrediction], bool | None]] = {
    "exact_match": lambda prediction: prediction.correct,
    "execution_accuracy": lambda prediction: prediction.executes_right,
}
RESAMPLES = 10_000


@dataclass(frozen=True)
class Spread:
    """The values of a metric over the seeds of a system.

    >>> spread = Spread((80.0, 90.0, 85.0))
    >>> spread.mean, spread.deviation
    (85.0, 5.0)
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation (with n - 1); None for a single seed."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Comparison:
    """The comparison of two systems by one metric.

    Attributes:
        metric: the name of the metric.
        first: the values of the first system.
        second: the values of the second system.
        p_values: a single p-value, or one per pair of seeds for BLEU and chrF; empty if no test applies.
        test: the name of the test.
    """

    metric: str
    first: Spread
    second: Spread
    p_values: tuple[float, ...] = ()
    test: str = ""

    @property
    def difference(self) -> float:
        """The mean of the second system minus that of the first."""
        return self.second.mean - self.first.mean


def compare(
    first: System,
    second: System,
    *,
    translation: bool = False,
    test: TranslationTest = "randomization",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Comparison, ...]:
    """Compare two systems by every metric that both have.

    Args:
        first: the predictions of each seed of the first system.
        second: the predictions of each seed of the second system, for the same examples.
        translation: whether to compare BLEU and chrF.
        test: the test of sacrebleu to use for BLEU and chrF.
        resamples: the number of random samples of each test; if there are not more choices of signs, the permutation
            test tries all of them.
        seed: the seed of the permutation test; the seed of sacrebleu is the environment variable ``SACREBLEU_SEED``.

    Raises:
        ValueError: the predictions are for different examples, or the systems have different numbers of seeds.
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
        first_values, second_values = (
            Spread(tuple(metrics[name] for metrics in system)) for system in values
        )
        p_values: tuple[float, ...] = ()
        test_name = ""
        if name in JUDGEMENT_OF:
            p_values = (permutation_test(*_judged(first, second, name), resamples=resamples, seed=seed),)
            test_name = "paired permutation test"
        elif name in TRANSLATION_METRICS:
            metric: TranslationMetric = "bleu" if name == "bleu" else "chrf"
            p_values = translation_test(metric, first, second, test=test, resamples=resamples)
            kind = "approximate randomization" if test == "randomization" else "bootstrap"
            test_name = f"sacrebleu's paired {kind}"
        comparisons.append(Comparison(name, first_values, second_values, p_values, test_name))
    return tuple(comparisons)


def permutation_test(
    first: Sequence[Sequence[bool]],
    second: Sequence[Sequence[bool]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> float:
    """The two-sided p-value of the paired permutation test; see the docstring of the module.

    Args:
        first: for each seed of the first system, whether each prediction is correct.
        second: for each seed of the second system, whether each prediction is correct.
        resamples: the largest number of choices of signs to try; if there are not more, all of them are tried.
        seed: the seed of the random choices.

    >>> permutation_test([[True, True, True, True, False]], [[False, False, False, False, False]])
    0.125
    """
    try:
        import numpy
        from scipy.stats import permutation_test as scipy_permutation_test
    except ImportError:
        raise PermalignError('The permutation test needs scipy: pip install "permalign[training]".') from None
    # Means are multiplied by both numbers of seeds, which makes them integers, so that ties are found exactly.
    num_correct = [numpy.array(system, dtype=int).sum(0) for system in (first, second)]
    differences = len(second) * num_correct[0] - len(first) * num_correct[1]
    differences = differences[differences != 0].astype(float)
    if len(differences) < 2:
        return 1.0  # a single difference has the same absolute value with either sign
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


def bleu_randomization_test(
    first: Sequence[Sequence[BleuStatistics]],
    second: Sequence[Sequence[BleuStatistics]],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> float:
    """The two-sided p-value of paired approximate randomization for BLEU.

    With T the difference between the systems' means of BLEU over seeds, and T(s) the same after the outputs of a random
    half of the sentences were exchanged, ``p = (1 + number of s with |T(s)| >= |T|) / (1 + resamples)``.

    Args:
        first: for each seed of the first system, the statistics of each sentence (see `BleuStatistics`).
        second: for each seed of the second system, the statistics of each sentence.
        resamples: the number of random exchanges.
        seed: the seed of the exchanges.

    Raises:
        ValueError: the systems have different numbers of seeds, so that outputs cannot be exchanged.

    >>> good, bad = [4, 3, 2, 1, 4, 3, 2, 1, 4, 4], [1, 0, 0, 0, 4, 3, 2, 1, 4, 4]
    >>> bleu_randomization_test([[good] * 20], [[bad] * 20]) < 0.001
    True
    """
    import numpy

    if len(first) != len(second):
        raise ValueError(
            f"one system has {len(first)} seeds and the other {len(second)}, but their outputs are exchanged in pairs. "
            "Give both systems the same number of seeds."
        )
    generator, difference = numpy.random.default_rng(seed), 0.0
    # 0 keeps the outputs of a sentence, 1 exchanges them; the same for all seeds
    exchanged = generator.integers(0, 2, (resamples, len(first[0]))).astype(float)
    differences = numpy.zeros(resamples)
    for one, other in zip(first, second, strict=True):
        ours, theirs = numpy.array(one, dtype=float), numpy.array(other, dtype=float)
        moved = exchanged @ (theirs - ours)  # (resamples, statistics)
        difference += float(bleu_of(ours.sum(0)) - bleu_of(theirs.sum(0)))
        differences += bleu_of(ours.sum(0) + moved) - bleu_of(theirs.sum(0) - moved)
    at_least = numpy.abs(differences) >= abs(difference) - 1e-9
    return float((1 + at_least.sum()) / (1 + resamples))


def bleu_of(statistics: "numpy.ndarray[Any, Any]") -> "numpy.ndarray[Any, Any]":
    """BLEU of sums of statistics, ``(..., statistics)``, with the exponential smoothing of sacrebleu."""
    import numpy

    counts, totals = statistics[..., :BLEU_ORDER], statistics[..., BLEU_ORDER : 2 * BLEU_ORDER]
    length, reference_length = statistics[..., -2], statistics[..., -1]
    halvings = (counts == 0).cumsum(-1)  # a count of zero becomes 1/2, the next one 1/4, ...
    precisions = numpy.where(counts == 0, 0.5**halvings, counts) / numpy.maximum(totals, 1)
    brevity = numpy.exp(numpy.minimum(0.0, 1 - reference_length / numpy.maximum(length, 1)))
    bleu = 100 * brevity * numpy.exp(numpy.log(precisions).mean(-1))
    return numpy.where((totals == 0).any(-1), 0.0, bleu)  # no output is as long as the longest n-grams


def translation_test(
    metric: TranslationMetric,
    first: System,
    second: System,
    *,
    test: TranslationTest = "randomization",
    resamples: int = RESAMPLES,
) -> tuple[float, ...]:
    """sacrebleu's p-value for each pair of seeds; 1 if the outputs are identical."""
    if len(first) != len(second):
        raise ValueError(
            f"one system has {len(first)} seeds and the other {len(second)}, but {metric} compares them in pairs. "
            "Give both systems the same number of seeds."
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
        return (
            1.0  # sacrebleu counts only differences above the observed one, and would return the smallest p
        )
    from sacrebleu.significance import PairedTest

    systems: list[tuple[str, Sequence[str]]] = [("first", outputs[0]), ("second", outputs[1])]
    references = [[prediction.reference for prediction in first]]
    kind = "ar" if test == "randomization" else "bs"
    _, scores = PairedTest(systems, {metric: make_metric(metric)}, references, kind, resamples)()
    (results,) = (results for name, results in scores.items() if name != "System")
    result = results[1]
    assert not isinstance(result, str)
    assert result.p_value is not None
    return result.p_value


def require_same_examples(all_predictions: System) -> None:
    """Raise a `ValueError` unless all predictions are for the same examples in the same order."""
    first = all_predictions[0]
    for number, predictions in enumerate(all_predictions[1:], start=2):
        if len(predictions) != len(first):
            raise ValueError(
                f"run 1 has predictions for {len(first)} examples, but run {number} for {len(predictions)}; only "
                "predictions for the same examples can be compared."
            )
        for example, other in (
            (prediction.example, other.example) for prediction, other in zip(first, predictions, strict=True)
        ):
            if (example.source, example.target) != (other.source, other.target):
                raise ValueError(
                    f"example {example.id} of run 1 is not example {other.id} of run {number} "
                    f"({' '.join(example.source)[:60]!r} and {' '.join(other.source)[:60]!r}); only "
                    "predictions for the same examples can be compared."
                )


def _judged(first: System, second: System, metric: str) -> list[list[list[bool]]]:
    """Whether each prediction is correct, for each system, seed and example."""
    judgement = JUDGEMENT_OF[metric]
    return [
        [[bool(judgement(prediction)) for prediction in predictions] for predictions in system]
        for system in (first, second)
    ]
