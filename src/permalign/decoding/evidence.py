"""Why an output was written: the derivation or the segments behind it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from permalign.decoding.beam import Hypothesis
from permalign.heads.base import Head
from permalign.reorderers.base import Reordering
from permalign.structures import Derivation, Segment, Transduction
from permalign.text.batching import pad


class Reasons(NamedTuple):
    """What leads from a sentence to an output; see `permalign.prediction.Explanation`."""

    order: tuple[int, ...] | None
    derivation: Derivation | Transduction | None
    segments: tuple[Segment, ...] | None


def reasons_of(
    outputs: Sequence[Hypothesis],
    head: Head,
    states: Tensor,
    reordering: Reordering,
    lengths: Tensor,
    summed: bool,
) -> list[Reasons]:
    """By the order chosen; or, where all orders are summed over, by the best derivation of the output itself.

    Args:
        outputs: one for each sentence.
        head: what wrote them.
        states: ``(batch, n, width)`` in the original order.
        reordering: of test time.
        lengths: of the sentences.
        summed: whether the likelihood is summed over all orders.
    """
    rows = [row for row, output in enumerate(outputs) if output.score > -torch.inf]
    arguments = head, reordering, lengths, rows, [outputs[row].words for row in rows]
    derivations = _derivations_of_outputs(states, *arguments) if summed else {}
    segments = {} if derivations else _segments_of_outputs(*arguments)
    reasons = []
    for row, length in enumerate(lengths.tolist()):
        if row in derivations:
            best = derivations[row]
            reasons.append(Reasons(best.order, best, best.segments))
            continue
        order = None if reordering.order is None else tuple(reordering.order[row, :length].tolist())
        derivation = reordering.derivations[row] if reordering.derivations else None
        reasons.append(Reasons(order, derivation, segments.get(row)))
    return reasons


def _derivations_of_outputs(
    states: Tensor,
    head: Head,
    reordering: Reordering,
    lengths: Tensor,
    rows: Sequence[int],
    outputs: Sequence[tuple[int, ...]],
) -> dict[int, Transduction]:
    """The best derivations of the outputs of some rows, where the head looks for them among all orders.

    Args:
        states: ``(batch, n, width)`` in the original order.
        head: which may sum over orders.
        reordering: of test time, with its distribution.
        lengths: of the sentences.
        rows: the sentences to look at.
        outputs: one for each of them.
    """
    if not rows or reordering.distribution is None:
        return {}
    chosen = torch.tensor(rows, device=states.device)
    target, target_lengths = (tensor.to(states.device) for tensor in pad(outputs))
    found = head.derivations_over_orders(
        reordering.distribution.select(chosen), states[chosen], lengths[chosen], target, target_lengths
    )
    return {} if found is None else dict(zip(rows, found, strict=True))


def _segments_of_outputs(
    head: Head,
    reordering: Reordering,
    lengths: Tensor,
    rows: Sequence[int],
    outputs: Sequence[tuple[int, ...]],
) -> dict[int, tuple[Segment, ...]]:
    """Segments of the outputs of some rows, where there is an order that leads back to source words."""
    if reordering.order is None or not rows:
        return {}
    states = reordering.states
    chosen = torch.tensor(rows, device=states.device)
    target, target_lengths = (tensor.to(states.device) for tensor in pad(outputs))
    found = head.segments(states[chosen], lengths[chosen], target, target_lengths, reordering.order[chosen])
    return {} if found is None else {row: tuple(some) for row, some in zip(rows, found, strict=True)}
