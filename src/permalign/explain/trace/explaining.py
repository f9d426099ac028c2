"""From a model and a sentence to traces: its own choice, samples, and several ways of decoding."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from permalign.explain.trace.encoded_sentence import EncodedSentence, build_trace, decode_in_order, read
from permalign.explain.trace.forced_target import explain_target
from permalign.explain.trace.records import Comparison, DecodingVariant, Trace
from permalign.model import Transducer
from permalign.structures import Derivation, OrderDistribution

VARIANTS = {
    "greedy": "the locally best rule of every span, from the root down",
    "viterbi": "the most probable tree",
    "permutation": "the most probable order, summed over its trees",
}


def explain(
    model: Transducer,
    sentence: str | Sequence[str],
    target: str | Sequence[str] | None = None,
    *,
    beam: int = 5,
) -> Trace:
    """How a model gets from a sentence to its output, and how sure it is; with a target, to that output.

    Args:
        model: any reorderer, any head; what it does not have is left out, and a note says so.
        sentence: text, cut at white space, or words.
        target: explain this output instead of the model's own;
            `permalign.explain.trace.forced_target.explain_target` says what is exact then.
        beam: how many prefixes to keep in the search for an output.

    Raises:
        ValueError: the sentence is empty, or no model of this kind can write the target.
    """
    encoded = read(model, sentence)
    if target is not None:
        return explain_target(encoded, target)
    (prediction,) = model.predict([encoded.words], beam=beam, explain=True)
    explanation = prediction.explanation
    if explanation is None:
        raise AssertionError("predict was asked to explain")
    derivation = explanation.derivation
    if derivation is None and explanation.order is not None and encoded.distribution is not None:
        derivation = _derivation_of_order(encoded.distribution, explanation.order)
    output = model.target.encode(prediction.tokens)
    trace = build_trace(encoded, derivation, explanation.order, output, prediction.score)
    if (
        trace.target != explanation.target
    ):  # pieces of words that were cut otherwise than the model wrote them
        trace = replace(trace, alignment=None, at_end=None)
    return replace(trace, target=explanation.target, segments=explanation.segments)


def sample(
    model: Transducer, sentence: str | Sequence[str], count: int = 8, *, seed: int = 0, beam: int = 1
) -> tuple[Trace, ...]:
    """Trees drawn from the model's distribution, each with what the head writes when the words stand so.

    Empty for a reorderer without a distribution. The same seed draws the same trees.
    """
    encoded = read(model, sentence)
    distribution = encoded.distribution
    if distribution is None:
        return ()
    generator = torch.Generator().manual_seed(seed)
    (derivations,) = distribution.sample_derivations(count, generator)
    drawn = [(derivation.order, derivation) for derivation in derivations]
    traces = {one: _in_order(encoded, *one, beam) for one in set(drawn)}
    return tuple(traces[one] for one in drawn)


def compare(model: Transducer, sentence: str | Sequence[str], *, beam: int = 5) -> Comparison | None:
    """Greedy, Viterbi and the most probable permutation; None for a reorderer without a distribution."""
    encoded = read(model, sentence)
    distribution = encoded.distribution
    if distribution is None:
        return None
    found, gap = _choices(distribution)
    traces = {one: _in_order(encoded, *one, beam) for one in set(found.values())}
    variants = [DecodingVariant(name, VARIANTS[name], traces[one]) for name, one in found.items()]
    return Comparison.of(variants, gap)


Choice = tuple[tuple[int, ...], Derivation | None]
"""An order, and the tree behind it."""


@torch.no_grad()
def _choices(distribution: OrderDistribution) -> tuple[dict[str, Choice], float]:
    """An order for each way to decode, and the gap of the last."""
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
    """The best derivation of one order of a single sentence."""
    (derivation,) = distribution.derivation_of_order(
        torch.tensor([list(order)], device=distribution.lengths.device)
    )
    return derivation


def _in_order(
    sentence: EncodedSentence, order: tuple[int, ...], derivation: Derivation | None, beam: int
) -> Trace:
    output, log_prob = decode_in_order(sentence, order, beam)
    return build_trace(sentence, derivation, order, output, log_prob)
