"""How an output follows from the source in a trace: segments and alignment posteriors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from permalign.explain.trace.encoded_sentence import EncodedSentence
from permalign.explain.trace.trace import rounded
from permalign.reorderers.discrete_order import take_order
from permalign.structures import Segment
from permalign.text.batching import pad


@dataclass(frozen=True)
class AlignedOutput:
    """How the output follows from the source; the attributes are those of `Trace`."""

    segments: tuple[Segment, ...] | None = None
    alignment: tuple[tuple[float, ...], ...] | None = None
    at_end: tuple[float, ...] | None = None


def align(
    sentence: EncodedSentence,
    order: Sequence[int] | None,
    output: Sequence[int],
    segments: tuple[Segment, ...] | None = None,
) -> AlignedOutput:
    """Compute segments, unless they are known, and alignment posteriors of an output given the order."""
    if order is None or not output:
        return AlignedOutput()
    orders = order_tensor(order, sentence)
    head = sentence.head_in_order(orders)
    states = take_order(sentence.states, orders)
    target, target_lengths = (tensor.to(states.device) for tensor in pad([list(output)]))
    if segments is None:
        found = head.segments(states, sentence.lengths, target, target_lengths, orders)
        segments = None if found is None else tuple(found[0])
    posteriors = head.alignment_posteriors(states, sentence.lengths, target, target_lengths)
    alignment = at_end = None
    if posteriors is not None:
        by_position = posteriors[0].T  # (output token, position)
        alignment = rounded(by_position[:, orders[0].argsort()].tolist())  # (output token, source token)
        if by_position.shape[1] > len(order):  # one more column: the end of the sentence
            (at_end,) = rounded([by_position[:, len(order)].tolist()])
    return AlignedOutput(segments, alignment, at_end)


def copied_shares(
    sentence: EncodedSentence, order: Sequence[int] | None, output: Sequence[int]
) -> tuple[float, ...] | None:
    """Compute the posterior probability that each token of an output was copied; None for a model that cannot copy.

    It is the gradient of the log-likelihood, in the given order or summed over all orders, with respect to weights on
    the copying of each token.
    """
    if sentence.copies is None or not output:
        return None
    states = sentence.reordering.states
    orders = None if order is None else order_tensor(order, sentence)
    if orders is not None:
        states = take_order(sentence.states, orders)
    target, target_lengths = (tensor.to(states.device) for tensor in pad([list(output)]))
    weights = torch.zeros(target.shape, device=states.device, dtype=states.dtype, requires_grad=True)
    pair = states, sentence.lengths, target, target_lengths
    with torch.enable_grad():
        if sentence.model.reorderer.sums_over_orders and sentence.distribution is not None:
            head = sentence.model.head.with_copies(replace(sentence.copies, log_weights=weights))
            total = head.log_likelihood_over_orders(sentence.distribution, sentence.states, *pair[1:])
        else:
            head = sentence.head_in_order(orders)
            assert head.copies is not None
            total = head.with_copies(replace(head.copies, log_weights=weights)).log_likelihood(*pair)
        if not bool(total.isfinite().all()):
            return None
        (shares,) = torch.autograd.grad(total.sum(), weights, allow_unused=True)
    return rounded([shares[0].tolist()])[0] if shares is not None else (0.0,) * len(output)


def order_tensor(order: Sequence[int], sentence: EncodedSentence) -> Tensor:
    """Return an order as a batch of one."""
    return torch.tensor([list(order)], device=sentence.states.device)


def alignment_notes(
    sentence: EncodedSentence, aligned: AlignedOutput, target: Sequence[str]
) -> tuple[str, ...]:
    """Return what a reader must know about the alignment of this output."""
    if not target:
        return ("The output is empty.",)
    late = [word for word, share in zip(target, aligned.at_end or (), strict=False) if share >= 0.5]
    if late:
        return (
            f"Written at the end of the sentence, and not at any of its words: {' '.join(late)}. The segments attach "
            "these output words to the source words read since the previous output, which need not be their source.",
        )
    if aligned.segments is None and sentence.reordering.order is not None:
        kind = sentence.model.options.head.kind.replace("_", " ")
        return (
            f"A head of the kind {kind} has no segments: every output word depends on the whole sentence.",
        )
    return ()
