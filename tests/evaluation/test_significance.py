import itertools
import random

import numpy
import pytest
import scipy.stats
from sacrebleu.significance import PairedTest

from permalign.evaluation import JudgedPrediction
from permalign.evaluation.sacrebleu_metrics import bleu_statistics, corpus_score, make_metric
from permalign.evaluation.significance import (
    Spread,
    bleu_of,
    bleu_randomization_test,
    compare,
    permutation_test,
    translation_test,
)
from permalign.tasks.base import Example


def exhaustively(first, second):
    """The p-value by enumeration: exchange the systems on every subset of examples."""
    mean = [
        [sum(seed[index] for seed in system) / len(system) for index in range(len(system[0]))]
        for system in (first, second)
    ]
    differences = [a - b for a, b in zip(*mean, strict=True)]
    seen = abs(sum(differences))
    sums = [
        abs(sum(sign * difference for sign, difference in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(value >= seen - 1e-9 for value in sums) / len(sums)


def draw(generator, seeds, examples, rate):
    return [[generator.random() < rate for _ in range(examples)] for _ in range(seeds)]


@pytest.mark.parametrize("seed", range(12))
def test_the_p_value_of_few_examples_equals_enumeration(seed):
    generator = random.Random(seed)
    examples = generator.randint(1, 11)
    first = draw(generator, generator.randint(1, 3), examples, 0.8)
    second = draw(generator, generator.randint(1, 3), examples, 0.4)
    p = permutation_test(first, second)
    assert p == pytest.approx(exhaustively(first, second), abs=1e-12)
    assert p == permutation_test(second, first)


def test_the_p_value_of_many_examples_is_close_to_the_exact_one():
    # With one seed each, T is a sum of signs: the sign test knows its distribution.
    first = [[True] * 60 + [False] * 40 + [True] * 300]
    second = [[False] * 60 + [True] * 40 + [True] * 300]
    p = permutation_test(first, second, resamples=20_000)
    assert p == pytest.approx(scipy.stats.binomtest(60, 100).pvalue, abs=0.01)
    assert p == permutation_test(first, second, resamples=20_000)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([[True, False]], [[True, False]], 1.0),
        ([[True, True]], [[True, False]], 1.0),
        ([[True, True]], [[False, False]], 2 / 4),
        ([[True] * 5], [[False] * 5], 2 / 32),
        ([[True] * 5, [False] * 5], [[False] * 5], 2 / 32),
        ([[True, False]], [[False, True]], 1.0),
    ],
)
def test_p_values_computed_by_hand(first, second, p):
    assert permutation_test(first, second) == pytest.approx(p)


def predictions(outputs, targets):
    return [
        JudgedPrediction(
            Example((f"source{index}",), tuple(target.split()), str(index)),
            tuple(output.split()),
            0.0,
            output == target,
        )
        for index, (output, target) in enumerate(zip(outputs, targets, strict=True))
    ]


def translations(seed, *rates):
    generator = random.Random(seed)
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "looked", "at", "him"]
    targets = [" ".join(generator.choices(words, k=generator.randint(5, 12))) for _ in range(80)]
    noisy = [
        [" ".join(w if generator.random() < rate else "noise" for w in target.split()) for target in targets]
        for rate in rates
    ]
    return [predictions(outputs, targets) for outputs in noisy]


@pytest.mark.parametrize("test", ["randomization", "bootstrap"])
@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_translations_are_compared_by_sacrebleu(metric, test):
    bad, good, as_good = translations(0, 0.5, 0.9, 0.9)
    assert translation_test(metric, [bad], [good], test=test, resamples=200)[0] == pytest.approx(1 / 201)
    assert translation_test(metric, [good], [as_good], test=test, resamples=200)[0] > 0.05
    assert translation_test(metric, [good], [good], test=test, resamples=200) == (1.0,)


@pytest.mark.parametrize(
    ("test", "kind", "name"),
    [
        ("randomization", "ar", "sacrebleu's paired approximate randomization"),
        ("bootstrap", "bs", "sacrebleu's paired bootstrap"),
    ],
)
def test_each_metric_of_translations_has_the_test_that_was_asked_for(test, kind, name):
    good, as_good = translations(0, 0.9, 0.9)
    compared = compare([good], [as_good], translation=True, test=test, resamples=200)
    of_translations = {each.metric: each for each in compared if each.metric in ("bleu", "chrf")}
    texts = [("first", texts_of(good)[0]), ("second", texts_of(as_good)[0])]
    for metric, comparison in of_translations.items():
        _, scores = PairedTest(texts, {metric: make_metric(metric)}, [texts_of(good)[1]], kind, 200)()
        ((_, result),) = (results for column, results in scores.items() if column != "System")
        assert comparison.p_values == (result.p_value,)
        assert comparison.test == name
    assert of_translations["bleu"].p_values != of_translations["chrf"].p_values


def texts_of(system):
    return [prediction.text for prediction in system], [prediction.reference for prediction in system]


def bleu_exhaustively(first, second):
    """The p-value by enumeration: BLEU by sacrebleu after the exchange of every subset of outputs, for each seed."""
    references = texts_of(first[0])[1]
    outputs = [[texts_of(seed)[0] for seed in system] for system in (first, second)]
    differences = []
    for exchanged in itertools.product((False, True), repeat=len(references)):
        total = 0.0
        for pair in zip(*outputs, strict=True):
            for sign, own, other in ((1, *pair), (-1, *pair[::-1])):
                mixed = [b if swap else a for a, b, swap in zip(own, other, exchanged, strict=True)]
                total += sign * corpus_score("bleu", mixed, references).value
        differences.append(abs(total))
    return sum(value >= differences[0] - 1e-9 for value in differences) / len(differences)


@pytest.mark.parametrize(
    "outputs",
    [
        ["a b c d e f", "g h i j k"],
        ["a b c d", "g h i"],  # too short
        ["a b c d e f x y", "x g h i j k"],  # too long
        ["b a d c f e", "k j i h g"],  # no match but single words
        ["a b c", "g h i"],  # no four words in a row
        ["a", "g"],
        ["", ""],
    ],
)
def test_bleu_of_statistics_is_that_of_sacrebleu(outputs):
    references = ["a b c d e f", "g h i j k"]
    statistics = numpy.array(bleu_statistics(outputs, references), dtype=float)
    expected = corpus_score("bleu", outputs, references).value
    assert float(bleu_of(statistics.sum(0))) == pytest.approx(expected)


@pytest.mark.parametrize(
    "rates", [(0.9, 0.6), (0.9, 0.85), (0.2, 0.05)]
)  # the last has n-grams without a match
def test_the_p_value_of_bleu_is_that_of_exchanged_outputs(rates):
    first, second = ([system[:6] for system in translations(seed, *rates)] for seed in (1, 2))
    second = [predictions(texts_of(seed)[0], texts_of(first[0])[1]) for seed in second]
    systems = [first[0], second[0]], [first[1], second[1]]  # two seeds each
    statistics = [[bleu_statistics(*texts_of(seed)) for seed in system] for system in systems]
    p = bleu_randomization_test(*statistics)
    exact = bleu_exhaustively(*systems)
    assert p == pytest.approx(exact, abs=0.02)
    assert p == bleu_randomization_test(*statistics[::-1])
    one_seed = bleu_randomization_test(*(seeds[:1] for seeds in statistics))
    assert one_seed == pytest.approx(bleu_exhaustively(*(seeds[:1] for seeds in systems)), abs=0.02)
    assert bleu_randomization_test(statistics[0], statistics[0]) == 1.0
    with pytest.raises(ValueError, match="one system has 2 seeds and the other 1"):
        bleu_randomization_test(statistics[0], statistics[1][:1])


def test_seeds_give_mean_and_deviation():
    bad, worse, good, better = translations(0, 0.5, 0.4, 0.8, 0.95)
    comparisons = {
        comparison.metric: comparison
        for comparison in compare([bad, worse], [good, better], translation=True, resamples=200)
    }
    assert set(comparisons) == {"exact_match", "token_accuracy", "bleu", "chrf"}
    exact = comparisons["exact_match"]
    share = [100 * sum(judged.correct for judged in seed) / 80 for seed in (good, better)]
    assert exact.second.values == pytest.approx(share)
    assert exact.second.deviation == pytest.approx(abs(share[0] - share[1]) / 2**0.5)
    assert exact.difference == pytest.approx(sum(share) / 2 - exact.first.mean)
    assert exact.p_values[0] < 0.05
    assert len(comparisons["bleu"].p_values) == 2
    assert comparisons["token_accuracy"].p_values == ()
    assert Spread((3.0,)).deviation is None


def test_only_predictions_for_the_same_examples_are_compared():
    seed = predictions(["a", "b"], ["a", "b"])
    with pytest.raises(ValueError, match="run 1 has predictions for 2 examples, but run 2 for 1;"):
        compare([seed], [seed[:1]])
    with pytest.raises(ValueError, match="example 0 of run 1 is not example 1 of run 3"):
        compare([seed, seed], [seed[::-1]])
    with pytest.raises(ValueError, match="Give both systems the same number of seeds"):
        compare([seed], [seed, seed], translation=True)
