"""Answers: outputs under a grammar, of ensembles and without scores, and explanations of long sentences."""

from random import Random

import torch

from benchmarks.measuring import Measurement, best_seconds
from benchmarks.models import Options, random_batch, translation_options
from permalign import Ensemble, Transducer
from permalign.tasks.geoquery import signatures
from permalign.tasks.grammar import Grammar
from permalign.text.vocabulary import Vocabulary


def transduction_options(width: int = 256, labels: int = 0) -> Options:
    """Exact transduction as for GeoQuery, with or without labels."""
    reorderer = {"kind": "separable", "objective": "exact", "embedding_dim": 64, "scorer_hidden_size": width}
    if labels:
        reorderer = {"kind": "labelled", "objective": "exact", "num_labels": labels}
    head = {"kind": "segments", "context": 1, "max_segment_length": 1, "embedding_dim": width}
    return {"reorderer": reorderer, "head": {**head, "encoder": {"hidden_size": width}, "hidden_size": width}}


def geoquery_model(options: Options) -> tuple[Transducer, Grammar]:
    """A model with random parameters that writes GeoQuery's programs, and their grammar."""
    grammar = Grammar(signatures.ANSWERS, signatures.rules(), optional=["all"])
    source = Vocabulary([f"s{number}" for number in range(200)])
    torch.manual_seed(0)
    return Transducer(options, source, Vocabulary(sorted(grammar.tokens))).eval(), grammar


def random_sentences(model: Transducer, count: int, length: int) -> list[list[str]]:
    """Sentences of random words."""
    random = Random(0)
    words = [f"s{number}" for number in range(len(model.source) - 4)]
    return [random.choices(words, k=length) for _ in range(count)]


def constrained_transduction(sentences: int = 64, length: int = 9, width: int = 256) -> Measurement:
    """Exact transduction with beam 5: candidates under a grammar, ranked by sums over all orders."""
    model, grammar = geoquery_model(transduction_options(width))
    inputs = random_sentences(model, sentences, length)
    seconds = best_seconds({"predict": (lambda: model.predict(inputs, beam=5, constraint=grammar), 3)})
    return Measurement(
        "constrained-transduction",
        f"exact transduction with beam 5 under GeoQuery's grammar, n={length}: predictions per second",
        sentences / seconds["predict"],
        "/s",
        "at least",
        200.0,
    )


def ensemble_of_three(
    sentences: int = 64, length: int = 9, vocab_size: int = 50, width: int = 256
) -> Measurement:
    """Three models with random parameters, which agree on nothing, so that all candidates have to be scored."""
    source, target, batch = random_batch(sentences, length, 1, 200, vocab_size)
    torch.manual_seed(0)
    members = [Transducer(translation_options(width), source, target).eval() for _ in range(3)]
    ensemble, inputs = Ensemble(members).eval(), [example.source for example in batch.examples]
    seconds = best_seconds(
        {
            "ensemble": (lambda: ensemble.predict(inputs, beam=5, max_length=8), 3),
            "single": (lambda: members[0].predict(inputs, beam=5, max_length=8), 3),
        }
    )
    return Measurement(
        "ensemble",
        f"SSNT with beam 5, n={length}: time of an ensemble of three models, relative to one",
        seconds["ensemble"] / seconds["single"],
        "x",
        "at most",
        4.0,
        {f"{name} seconds": value for name, value in seconds.items()},
    )


def answers_without_scores(
    sentences: int = 64, length: int = 9, labels: int = 8, width: int = 256
) -> Measurement:
    """Greedy answers of labelled trees, whose scores are sums over all orders, without these scores and with them."""
    model, _ = geoquery_model(transduction_options(width, labels))
    inputs = random_sentences(model, sentences, length)
    seconds = best_seconds(
        {
            "with scores": (lambda: model.predict(inputs), 3),
            "without": (lambda: model.predict(inputs, scores=False), 3),
        }
    )
    return Measurement(
        "answers-without-scores",
        f"labelled transduction, n={length}, K={labels}: time of answers without their scores, relative to with them",
        seconds["without"] / seconds["with scores"],
        "x",
        details={f"{name} seconds": value for name, value in seconds.items()},
    )


def long_explanation(length: int = 403, width: int = 64, target: float = 5.0) -> Measurement:
    """The explanation of one long sentence by ReMoto on SSNT."""
    model, _ = geoquery_model(translation_options(width))
    (sentence,) = random_sentences(model, 1, length)
    seconds = best_seconds({"explain": (lambda: model.explain(sentence), 1)})["explain"]
    return Measurement(
        "explanation", f"explaining a sentence of {length} words", seconds, "s", "at most", target
    )
