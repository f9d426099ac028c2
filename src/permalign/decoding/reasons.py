"""Why an output was written: the derivation or the segments behind it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from permalign.heads.base import Head
from permalign.reorderers.base import Reordering
from permalign.structures import Segment, Transduction
from permalign.text.batching import pad


def derivations_of_outputs(
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


def segments_of_outputs(
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
