"""Explaining a sentence: the model's own output or a given one, samples, and several ways of decoding."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from permalign.checks import require_at_least_one
from permalign.decoding.beam import SearchSettings
from permalign.explain.trace.build_trace import build_trace, decode_in_order
from permalign.explain.trace.encoded_sentence import EncodedSentence, encode_sentence
from permalign.explain.trace.forced_target import explain_target
from permalign.explain.trace.trace import Comparison, DecodingVariant, Trace
from permalign.models.base import Model
from permalign.models.prediction import Prediction
from permalign.structures import Derivation, OrderDistribution

VARIANTS = {
    "greedy": "the locally best rule of every span, from the root down",
    "viterbi": "the most probable tree",
    "permutation": "the most probable order, summed over its trees",
}


def explain(
    model: Model,
    sentence: str | Sequence[str],
    target: str | Sequence[str] | None = None,
    *,
    beam: int = 5,
    length_penalty: float = 0.0,
    max_operations: float | None = None,
) -> Trace:
    """Explain how a model gets from a sentence to its output, and how confident it is.

    Args:
        model: a model with any reorderer and any head; notes say what it does not have.
        sentence: a text, split at white space, or a sequence of words.
        target: the output to explain instead of the model's own;
            `permalign.explain.trace.forced_target.explain_target` says what is exact then.
        beam: the width of the beam search for the model's own output.
        length_penalty: the exponent of the length by which log-probabilities are divided when outputs are compared.
        max_operations: how many operations sums over all orders may take; None for any number.

    Raises:
        ValueError: the sentence is empty, or a model of this kind cannot write the target.
        TooCostlyError: sums over all orders would take more operations than allowed; they have not begun.
    """
    encoded = encode_sentence(model, sentence)
    if target is not None:
        return explain_target(encoded, target, max_operations)
    prediction = _predict(
        model, encoded, SearchSettings(beam, max_operations=max_operations, length_penalty=length_penalty)
    )
    explanation = prediction.explanation
    if explanation is None:
        raise AssertionError("predict was asked to explain")
    derivation = explanation.derivation
    if derivation is None and explanation.order is not None and encoded.distribution is not None:
        derivation = _derivation_of_order(encoded.distribution, explanation.order)
    output = encoded.target.encode(prediction.tokens)
    trace = build_trace(
        encoded, derivation, explanation.order, output, prediction.score, explanation.segments
    )
    if trace.target != explanation.target:  # the model split words into other subwords than encode does
        trace = replace(trace, alignment=None, at_end=None, copied=None)
    words = None if prediction.tokens == explanation.target else prediction.tokens
    return replace(trace, target=explanation.target, segments=explanation.segments, words=words)


def _predict(model: Model, encoded: EncodedSentence, settings: SearchSettings) -> Prediction:
    """The model's own output, explained; a transducer does not read the sentence a second time."""
    require_at_least_one(beam=settings.beam)
    if model is encoded.model:
        reading = encoded.reading
        (prediction,) = model.predict_reading(reading, reading.batch, [encoded.words], settings, explain=True)
    else:
        (prediction,) = model.predict(
            [encoded.words],
            beam=settings.beam,
            length_penalty=settings.length_penalty,
            explain=True,
            max_operations=settings.max_operations,
        )
    return prediction


def sample(
    model: Model, sentence: str | Sequence[str], count: int = 8, *, seed: int = 0, beam: int = 1
) -> tuple[Trace, ...]:
    """Draw trees from the model's distribution, each with the output that the head writes in that order.

    Args:
        model: the model.
        sentence: a text, split at white space, or a sequence of words.
        count: how many trees to draw.
        seed: the seed of the random generator; the same seed draws the same trees.
        beam: the width of the beam search for the outputs.

    Returns:
        One trace per tree; empty for a reorderer without a distribution.
    """
    encoded = encode_sentence(model, sentence)
    if encoded.distribution is None:
        return ()
    generator = torch.Generator().manual_seed(seed)
    (derivations,) = encoded.distribution.sample_derivations(count, generator)
    traces = {
        derivation: _trace_order(encoded, derivation.order, derivation, beam)
        for derivation in set(derivations)
    }
    return tuple(traces[derivation] for derivation in derivations)


def compare(model: Model, sentence: str | Sequence[str], *, beam: int = 5) -> Comparison | None:
    """Compare greedy decoding, Viterbi decoding and the most probable permutation.

    Args:
        model: the model.
        sentence: a text, split at white space, or a sequence of words.
        beam: the width of the beam search for the outputs.

    Returns:
        The comparison; None for a reorderer without a distribution.
    """
    encoded = encode_sentence(model, sentence)
    if encoded.distribution is None:
        return None
    choices, gap = _decode_variants(encoded.distribution)
    traces = {choice: _trace_order(encoded, *choice, beam) for choice in set(choices.values())}
    variants = [DecodingVariant(name, VARIANTS[name], traces[choice]) for name, choice in choices.items()]
    return Comparison.of(variants, gap)


Choice = tuple[tuple[int, ...], Derivation | None]
"""An order, and the tree behind it."""


@torch.no_grad()
def _decode_variants(distribution: OrderDistribution) -> tuple[dict[str, Choice], float]:
    """Decode in all ways; the number is the gap of the most probable order, see `Comparison`."""
    probable = distribution.most_probable_order(distribution.search_budget)
    order = tuple(probable.order[0].tolist())
    (greedy,), (best,) = distribution.greedy_derivation(), distribution.best_derivation()
    choices: dict[str, Choice] = {
        "greedy": (greedy.order, greedy),
        "viterbi": (best.order, best),
        "permutation": (order, best if order == best.order else _derivation_of_order(distribution, order)),
    }
    return choices, float(probable.gap)


def _derivation_of_order(distribution: OrderDistribution, order: Sequence[int]) -> Derivation | None:
    """Return the best derivation of one order of a single sentence."""
    orders = torch.tensor([list(order)], device=distribution.lengths.device)
    (derivation,) = distribution.derivation_of_order(orders)
    return derivation


def _trace_order(
    sentence: EncodedSentence, order: tuple[int, ...], derivation: Derivation | None, beam: int
) -> Trace:
    output, log_prob = decode_in_order(sentence, order, beam)
    return build_trace(sentence, derivation, order, output, log_prob)
