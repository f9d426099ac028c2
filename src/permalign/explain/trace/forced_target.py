"""Explaining an output that the caller gives: tree, order and alignment given both the sentence and the target."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import torch
from torch import Tensor

from permalign.decoding.search_cost import require_affordable
from permalign.explain.trace.build_trace import build_trace, finite
from permalign.explain.trace.encoded_sentence import EncodedSentence
from permalign.explain.trace.trace import Confidence, Trace, rounded
from permalign.explain.trace.tree_nodes import flatten_tree, node_statistics
from permalign.heads.base import Head
from permalign.heads.tagging import TaggingHead
from permalign.reorderers.discrete_order import take_order
from permalign.structures import Derivation, OrderDistribution
from permalign.text.batching import pad
from permalign.text.codec import UNKNOWN_ID

MAX_DERIVATIONS = 64
"""How many derivations are rescored if the posterior over orders cannot be summed exactly."""


@torch.no_grad()
def explain_target(
    sentence: EncodedSentence, target: str | Sequence[str], max_operations: float | None = None
) -> Trace:
    """Explain how a model gets from a sentence to a given target.

    What is exact depends on the model:

    - A separable reorderer with a tagging head that reads single words: everything is exact, summed over all trees.
    - A head that can search over all orders itself: the best tree and its segments are exact.
    - A reorderer with a distribution and any other head: the orders of the most probable trees are rescored by the
      exact likelihood of the target in that order, and the best one is shown. The alignment is exact given the order.
      The probability of the order is relative to the rescored orders, so it is an upper bound; a note says how much of
      the prior probability these have.
    - A reorderer without a distribution: the alignment is exact given the only order there is.

    Args:
        sentence: the sentence.
        target: the output, a text or a sequence of words.
        max_operations: how many operations sums over all orders may take; None for any number.

    Raises:
        ValueError: the target is empty, or this model cannot write it for this sentence.
        TooCostlyError: sums over all orders would take more operations than allowed; they have not begun.
    """
    words = target.split() if isinstance(target, str) else list(target)
    output = sentence.target.encode(words)
    if not output:
        raise ValueError("the target is empty; give the output to explain, or leave it out.")
    distribution = sentence.distribution
    if distribution is None:
        trace = _trace_only_order(sentence, output)
    else:
        _require_affordable(sentence, output, max_operations)
        trace = (
            _trace_posterior(sentence, distribution, output)
            or _trace_best_derivation(sentence, distribution, output)
            or _trace_rescored_orders(sentence, distribution, output)
        )
    return replace(trace, target_given=True, notes=(*_unknown_notes(sentence, words, output), *trace.notes))


def _unknown_notes(sentence: EncodedSentence, words: Sequence[str], output: Sequence[int]) -> tuple[str, ...]:
    if UNKNOWN_ID not in output:
        return ()
    unknown = [word for word in dict.fromkeys(words) if UNKNOWN_ID in sentence.target.encode([word])]
    return (
        f"The model cannot write these words of the target and treats them as unknown: {', '.join(unknown)}.",
    )


def _require_affordable(
    sentence: EncodedSentence, output: Sequence[int], max_operations: float | None
) -> None:
    """Require that a sum over all orders takes no more operations than allowed, if the head has such sums."""
    head, num_labels = sentence.model.head, sentence.model.reorderer.num_labels

    def cost(source_length: int, target_length: int) -> int:
        return head.cost_over_orders(source_length, target_length, num_labels)

    require_affordable(cost, len(sentence.tokens), [len(output)], max_operations)


def _trace_only_order(sentence: EncodedSentence, output: Sequence[int]) -> Trace:
    target, target_lengths = _target_batch(output, 1, sentence)
    states = sentence.reordering.states
    head = sentence.head_in_order(None)
    log_prob = float(head.log_likelihood(states, sentence.lengths, target, target_lengths))
    order = sentence.reordering.order
    return build_trace(sentence, None, None if order is None else order[0].tolist(), output, log_prob)


def _reads_single_words(head: Head) -> TypeGuard[TaggingHead]:
    return isinstance(head, TaggingHead) and head.encoder is None


def _trace_best_derivation(
    sentence: EncodedSentence, distribution: OrderDistribution, output: Sequence[int]
) -> Trace | None:
    """Trace the best of all derivations, with its segments; None if the head cannot search for it."""
    head = sentence.head_over_orders
    pair = (distribution, sentence.states, sentence.lengths, *_target_batch(output, 1, sentence))
    derivations = head.derivations_over_orders(*pair)
    if derivations is None:
        return None
    (best,) = derivations
    total = float(head.log_likelihood_over_orders(*pair))
    if best.log_prob == -torch.inf:
        raise ValueError("this model cannot write the target, whatever the order of the words.")
    trace = build_trace(sentence, best, best.order, output, total, best.segments)
    confidence = Confidence(finite(total), finite(best.log_prob - total), None, None)
    note = (
        "Tree and segments are exactly the most probable ones given sentence and target, and the probability is that "
        "of both together. The probabilities of the tree's nodes do not take the target into account."
    )
    return replace(trace, segments=best.segments, confidence=confidence, notes=(*trace.notes, note))


def _trace_posterior(
    sentence: EncodedSentence, distribution: OrderDistribution, output: Sequence[int]
) -> Trace | None:
    """Trace the exact posterior over all trees; None if the head or the distribution does not have it."""
    head = sentence.head_over_orders
    if not _reads_single_words(head):
        return None
    target, target_lengths = _target_batch(output, 1, sentence)
    emissions = head.target_emissions(sentence.states, sentence.lengths, target, target_lengths)
    posterior = distribution.tagging_posterior(emissions)
    if posterior is None:
        return None
    best = posterior.derivation
    trace = build_trace(sentence, best, best.order, output, posterior.log_likelihood)
    # p(order | target) = p(order) p(target | order) / p(target)
    prior = trace.confidence.order
    likelihood = sum(float(emissions[0, token, position]) for position, token in enumerate(best.order))
    order = None if prior is None else finite(prior + likelihood - posterior.log_likelihood)
    # one output token per position, so [output token][token] is also [position][token]
    alignment = rounded(posterior.alignment.T.tolist())
    note = "Tree, order and alignment are exact given sentence and target: they are summed over all trees."
    return replace(
        trace,
        nodes=flatten_tree(
            best.tree, node_statistics(posterior.rules, distribution.length), distribution.normal_form
        ),
        confidence=Confidence(finite(posterior.log_likelihood), finite(best.log_prob), order, None),
        matrix=alignment,
        alignment=alignment,
        notes=(*trace.notes, note),
    )


def _trace_rescored_orders(
    sentence: EncodedSentence, distribution: OrderDistribution, output: Sequence[int]
) -> Trace:
    """Trace the best order among those of the most probable trees, by its joint probability with the output."""
    candidates: dict[tuple[int, ...], Derivation] = {}
    for derivation in distribution.top_derivations(MAX_DERIVATIONS)[0]:
        candidates.setdefault(
            derivation.order, derivation
        )  # best first: the first one is the best of its order
    own = sentence.reordering.order
    if own is not None and (own_order := tuple(own[0].tolist())) not in candidates:
        (own_derivation,) = distribution.derivation_of_order(own)
        if own_derivation is not None:
            candidates[own_order] = own_derivation
    orders = torch.tensor(list(candidates), device=sentence.states.device)
    priors = distribution.double().log_prob(orders[:, None])[:, 0]
    likelihoods = _log_likelihoods(sentence, orders, output).double()
    joint = priors + likelihoods
    total = joint.logsumexp(0)
    if float(total) == -torch.inf:
        raise ValueError("this model cannot write the target, whatever the order of the words.")
    posterior = (joint - total).exp()
    best = int(joint.argmax())
    derivation = list(candidates.values())[best]
    trace = build_trace(sentence, derivation, derivation.order, output, float(likelihoods[best]))
    # given its order, a tree does not depend on the output
    tree_given_order = derivation.log_prob - float(priors[best])
    order_log_prob = float(posterior[best].log())
    matrices = torch.nn.functional.one_hot(orders, orders.shape[1]).double()
    note = (
        f"The order is the best of {len(candidates)} orders that were rescored with the target. Before the target is "
        f"seen, these have {float(priors.logsumexp(0).exp()):.1%} of the probability; afterwards, the probability of "
        "the order is relative to them. The alignment is exact given the order. The probabilities of the tree's nodes "
        "do not take the target into account."
    )
    return replace(
        trace,
        confidence=Confidence(
            finite(float(likelihoods[best])),
            finite(order_log_prob + tree_given_order),
            finite(order_log_prob),
            None,
        ),
        matrix=rounded((posterior[:, None, None] * matrices).sum(0).tolist()),
        notes=(*trace.notes, note),
    )


def _log_likelihoods(
    sentence: EncodedSentence, orders: Tensor, output: Sequence[int], batch_size: int = 16
) -> Tensor:
    """Compute the log-likelihood of the output given each order."""
    log_likelihoods = []
    for batch in orders.split(batch_size):
        states = take_order(sentence.states.expand(len(batch), -1, -1), batch)
        target, target_lengths = _target_batch(output, len(batch), sentence)
        lengths = sentence.lengths.repeat(len(batch))
        head = sentence.head_in_order(batch)
        log_likelihoods.append(head.log_likelihood(states, lengths, target, target_lengths))
    return torch.cat(log_likelihoods)


def _target_batch(output: Sequence[int], batch_size: int, sentence: EncodedSentence) -> tuple[Tensor, Tensor]:
    """Return the ids of an output, repeated, and their lengths."""
    target, lengths = pad([list(output)] * batch_size)
    return target.to(sentence.states.device), lengths.to(sentence.states.device)
