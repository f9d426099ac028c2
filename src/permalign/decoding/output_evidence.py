"""The evidence behind an output: its order, derivation and segments."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from permalign.decoding.candidates import Candidate
from permalign.decoding.search_over_orders import replace_orders
from permalign.heads.base import Head
from permalign.heads.copying import CopySource
from permalign.reorderers.base import Reordering
from permalign.structures import Derivation, Segment, Transduction
from permalign.text.batching import pad


class Evidence(NamedTuple):
    """What leads from a sentence to an output; see `permalign.models.prediction.Explanation`."""

    order: tuple[int, ...] | None
    derivation: Derivation | Transduction | None
    segments: tuple[Segment, ...] | None


def find_evidence(
    outputs: Sequence[Candidate],
    head: Head,
    states: Tensor,
    reordering: Reordering,
    lengths: Tensor,
    summed: bool,
    copies: CopySource | None = None,
) -> list[Evidence]:
    """The evidence behind one output of each sentence.

    It follows from the order in which an output was found; or, where the likelihood is summed over all orders and the
    head can search them, from the most probable derivation of the output itself.

    Args:
        outputs: one output for each sentence.
        head: the head that wrote them.
        states: ``(batch, n, width)``, what the head reads, in the original order.
        reordering: the reorderer's choice at test time.
        lengths: ``(batch,)``, the lengths of the sentences.
        summed: whether the likelihood is summed over all orders.
        copies: the source words that the head can copy, in the original order; None if it does not copy.
    """
    found_in = {row: output.derivation for row, output in enumerate(outputs) if output.derivation is not None}
    reordering = replace_orders(reordering, states, found_in)
    output_lengths = torch.tensor([len(output.tokens) for output in outputs], device=lengths.device)
    writable = head.supports_lengths(lengths, output_lengths).tolist()
    rows = [row for row, output in enumerate(outputs) if output.score != -torch.inf and writable[row]]
    arguments = head, copies, reordering, lengths, rows, [outputs[row].tokens for row in rows]
    derivations = _derivations_of_outputs(states, *arguments) if summed else {}
    segments = {} if derivations else _segments_of_outputs(*arguments)
    evidence = []
    for row, length in enumerate(lengths.tolist()):
        if row in derivations:
            best = derivations[row]
            evidence.append(Evidence(best.order, best, best.segments))
            continue
        order = None if reordering.order is None else tuple(reordering.order[row, :length].tolist())
        derivation = reordering.derivations[row] if reordering.derivations else None
        evidence.append(Evidence(order, derivation, segments.get(row)))
    return evidence


def _derivations_of_outputs(
    states: Tensor,
    head: Head,
    copies: CopySource | None,
    reordering: Reordering,
    lengths: Tensor,
    rows: Sequence[int],
    outputs: Sequence[tuple[int, ...]],
) -> dict[int, Transduction]:
    """The most probable derivations of the outputs of some rows, where the head searches all orders.

    Args:
        states: ``(batch, n, width)``, what the head reads, in the original order.
        head: the head, which may sum over orders.
        copies: the source words that the head can copy, in the original order; None if it does not copy.
        reordering: the reorderer's choice at test time, with its distribution.
        lengths: ``(batch,)``, the lengths of the sentences.
        rows: the sentences to look at.
        outputs: one output for each of these rows.
    """
    if not rows or reordering.distribution is None:
        return {}
    index = torch.tensor(rows, device=states.device)
    target, target_lengths = (tensor.to(states.device) for tensor in pad(outputs))
    head = head.with_copies(None if copies is None else copies.select(index))
    derivations = head.derivations_over_orders(
        reordering.distribution.select(index), states[index], lengths[index], target, target_lengths
    )
    return {} if derivations is None else dict(zip(rows, derivations, strict=True))


def _segments_of_outputs(
    head: Head,
    copies: CopySource | None,
    reordering: Reordering,
    lengths: Tensor,
    rows: Sequence[int],
    outputs: Sequence[tuple[int, ...]],
) -> dict[int, tuple[Segment, ...]]:
    """The segments of the outputs of some rows, where an order maps positions to source words."""
    if reordering.order is None or not rows:
        return {}
    states = reordering.states
    index = torch.tensor(rows, device=states.device)
    target, target_lengths = (tensor.to(states.device) for tensor in pad(outputs))
    order = reordering.order[index]
    head = head.with_copies(None if copies is None else copies.select(index).in_order(order))
    segments = head.segments(states[index], lengths[index], target, target_lengths, order)
    return {} if segments is None else dict(zip(rows, map(tuple, segments), strict=True))
