"""Explaining an output that was given: what the model believes about tree and alignment once it has seen both sides."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import torch
from torch import Tensor

from permalign.explain.trace.encoded_sentence import EncodedSentence, build_trace, finite
from permalign.explain.trace.records import Confidence, Trace, judge_of, nodes_of, rounded
from permalign.heads.base import Head
from permalign.heads.tagging import TaggingHead
from permalign.reorderers.discrete_order import take_order
from permalign.structures import Derivation, OrderDistribution
from permalign.text.batching import pad
from permalign.text.codec import UNKNOWN_ID

CANDIDATES = 64
"""How many derivations are rescored where the posterior of orders cannot be summed exactly."""


@torch.no_grad()
def explain_target(sentence: EncodedSentence, target: str | Sequence[str]) -> Trace:
    """The tree, order and alignment of a pair.

    - A separable reorderer with a tagging head that reads single words: everything is exact, summed over all trees.
    - A separable reorderer with a head that searches all orders itself: the best tree and segments, exactly.
    - A separable reorderer with any other head: the orders of the most probable trees are rescored by the exact
      likelihood of the output in that order, and the best is shown. Exact given the order; the probability of the
      order is among those rescored, so an upper bound. A note says how much of the prior they hold.
    - No distribution over orders: the alignment given the one order there is, exactly.

    Raises:
        ValueError: the target is empty, or cannot be an output of this model for this sentence.
    """
    words = target.split() if isinstance(target, str) else list(target)
    output = sentence.model.target.encode(words)
    if not output:
        raise ValueError("the target is empty; give the output to explain, or leave it out.")
    distribution = sentence.distribution
    if distribution is None:
        trace = _in_the_only_order(sentence, output)
    else:
        trace = (
            _summed(sentence, distribution, output)
            or _searched(sentence, distribution, output)
            or _rescored(sentence, distribution, output)
        )
    return replace(trace, target_given=True, notes=(*_unknown(sentence, words, output), *trace.notes))


def _unknown(sentence: EncodedSentence, words: Sequence[str], output: Sequence[int]) -> tuple[str, ...]:
    if UNKNOWN_ID not in output:
        return ()
    lost = [word for word in dict.fromkeys(words) if UNKNOWN_ID in sentence.model.target.encode([word])]
    return (
        f"The model cannot write these words of the target, and takes them as unknown: {', '.join(lost)}.",
    )


def _in_the_only_order(sentence: EncodedSentence, output: Sequence[int]) -> Trace:
    target, target_lengths = _target(output, 1, sentence)
    states = sentence.reordering.states
    log_prob = float(sentence.model.head.log_likelihood(states, sentence.lengths, target, target_lengths))
    order = sentence.reordering.order
    tokens = None if order is None else order[0].tolist()
    return build_trace(sentence, None, tokens, output, log_prob)


def _reads_single_words(head: Head) -> TypeGuard[TaggingHead]:
    return isinstance(head, TaggingHead) and head.encoder is None


def _searched(
    sentence: EncodedSentence, distribution: OrderDistribution, output: Sequence[int]
) -> Trace | None:
    """The best derivation among all, for a head that can search it; its segments come with it."""
    head: Any = sentence.model.head
    search = getattr(head, "derivations_over_orders", None)
    if search is None:
        return None
    pair = (distribution, sentence.states, sentence.lengths, *_target(output, 1, sentence))
    found = search(*pair)
    if found is None:
        return None
    (best,) = found
    total = float(head.log_likelihood_over_orders(*pair))
    if best.log_prob == -torch.inf:
        raise ValueError("this model cannot write the target, whatever the order of the words.")
    trace = build_trace(sentence, best, best.order, output, total)
    confidence = Confidence(finite(total), finite(best.log_prob - total), None, None)
    note = (
        "Tree and segments are the most probable ones given both sides, exactly, among all; the probability is of "
        "both. The tree's nodes are judged without the target."
    )
    return replace(trace, segments=best.segments, confidence=confidence, notes=(*trace.notes, note))


def _summed(
    sentence: EncodedSentence, distribution: OrderDistribution, output: Sequence[int]
) -> Trace | None:
    """The exact posterior over all trees; None where head or distribution do not have it."""
    head = sentence.model.head
    if not _reads_single_words(head):
        return None
    target, target_lengths = _target(output, 1, sentence)
    emissions = head.target_emissions(sentence.states, sentence.lengths, target, target_lengths)
    posterior = distribution.tagging_posterior(emissions)
    if posterior is None:
        return None
    best = posterior.derivation
    trace = build_trace(sentence, best, best.order, output, posterior.log_likelihood)
    written = sum(float(emissions[0, token, place]) for place, token in enumerate(best.order))
    prior = trace.confidence.order
    order = None if prior is None else finite(prior + written - posterior.log_likelihood)
    alignment = rounded(
        posterior.alignment.T.tolist()
    )  # [output word][token], and here also [position][token]
    return replace(
        trace,
        nodes=nodes_of(best.tree, judge_of(posterior.rules, distribution.length), distribution.normal_form),
        confidence=Confidence(finite(posterior.log_likelihood), finite(best.log_prob), order, None),
        matrix=alignment,
        alignment=alignment,
        notes=(*trace.notes, "Tree, order and alignment are given both sides, exactly, over all trees."),
    )


def _rescored(sentence: EncodedSentence, distribution: OrderDistribution, output: Sequence[int]) -> Trace:
    """The best of the most probable trees' orders, by their joint probability with the output."""
    candidates: dict[tuple[int, ...], Derivation] = {}
    for derivation in distribution.top_derivations(CANDIDATES)[0]:
        candidates.setdefault(derivation.order, derivation)  # best first: the first is its order's best
    own = sentence.reordering.order
    if own is not None and (tokens := tuple(own[0].tolist())) not in candidates:
        (derivation_of_own,) = distribution.derivation_of_order(own)
        if derivation_of_own is not None:
            candidates[tokens] = derivation_of_own
    orders = torch.tensor(list(candidates), device=sentence.states.device)
    priors = distribution.double().log_prob(orders[:, None])[:, 0]
    likelihoods = _likelihoods(sentence, orders, output).double()
    joint = priors + likelihoods
    total = joint.logsumexp(0)
    if float(total) == -torch.inf:
        raise ValueError("this model cannot write the target, whatever the order of the words.")
    shares = (joint - total).exp()
    best = int(joint.argmax())
    chosen = list(candidates.values())[best]
    trace = build_trace(sentence, chosen, chosen.order, output, float(likelihoods[best]))
    within = chosen.log_prob - float(
        priors[best]
    )  # of the tree, given its order: the output says nothing about it
    order_log_prob = float(shares[best].log())
    matrix = torch.nn.functional.one_hot(orders, orders.shape[1]).double()
    held = float(priors.logsumexp(0).exp())
    return replace(
        trace,
        confidence=Confidence(
            finite(float(likelihoods[best])), finite(order_log_prob + within), finite(order_log_prob), None
        ),
        matrix=rounded((shares[:, None, None] * matrix).sum(0).tolist()),
        notes=(*trace.notes, _rescoring_note(len(candidates), held)),
    )


def _rescoring_note(orders: int, held: float) -> str:
    return (
        f"The order is the best of {orders} rescored with the target; they hold {held:.1%} of the probability before "
        "it was seen. Its probability is among these. The alignment is exact, given the order; the tree's nodes are "
        "judged without the target."
    )


def _likelihoods(
    sentence: EncodedSentence, orders: Tensor, output: Sequence[int], at_once: int = 16
) -> Tensor:
    """Of the output, given each order."""
    parts = []
    for some in orders.split(at_once):
        states = take_order(sentence.states.expand(len(some), -1, -1), some)
        target, target_lengths = _target(output, len(some), sentence)
        lengths = sentence.lengths.repeat(len(some))
        parts.append(sentence.model.head.log_likelihood(states, lengths, target, target_lengths))
    return torch.cat(parts)


def _target(output: Sequence[int], rows: int, sentence: EncodedSentence) -> tuple[Tensor, Tensor]:
    target, lengths = pad([list(output)] * rows)
    return target.to(sentence.states.device), lengths.to(sentence.states.device)
