"""Search where the likelihood is summed over all orders: outputs of several orders, ranked by the whole sum."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan

import torch
from torch import Tensor
from torch.nn import functional

from permalign.decoding.beam import Hypothesis
from permalign.heads.base import Decoder, Head
from permalign.reorderers.base import Reordering
from permalign.reorderers.discrete_order import matrix_of_order, take_order
from permalign.structures import Derivation

Search = Callable[..., list[list[Hypothesis]]]
"""Finds outputs: called with a decoder, the longest output of each of its rows, and ``n_best``."""

Rank = Callable[[list[list[Hypothesis]]], list[list[Hypothesis]]]
"""Puts the outputs of every sentence into another order, best first; it may score them anew, and add some."""


def search_over_orders(
    head: Head,
    reordering: Reordering,
    states: Tensor,
    lengths: Tensor,
    search: Search,
    longest: Sequence[int],
    beam: int,
    n_best: int | None,
    rank: Rank | None = None,
) -> tuple[list[list[Hypothesis]], Reordering]:
    """Outputs of every sentence that were found in several orders; and the order each best one came from.

    One order is the reorderer's, the others are those of the ``beam`` most probable derivations (where leaves may be
    phrases, all come from the head). Outputs are searched in each order by itself; how probable they are over all
    orders is for ``rank`` to say.

    Args:
        head: which sums over orders.
        reordering: of test time, with its distribution.
        states: ``(batch, n, width)`` in the original order.
        lengths: of the sentences.
        search: looks for outputs in one order.
        longest: the most words an output of each sentence may have.
        beam: how many outputs to look for in an order, and how many derivations to try.
        n_best: how many outputs to return at most; None for all.
        rank: scores all that was found, and puts it into order. An output that it adds has the reorderer's order. If
            None, all outputs are returned without a score.
    """
    assert reordering.distribution is not None
    ranked = head.phrase_derivations(reordering.distribution, states, lengths, beam)
    if ranked is None:
        others = _other_orders(reordering, lengths, beam)
        reordered, leaves = reordering.states, lengths
    else:
        best, others = (
            [some[0] for some in ranked],
            [(row, one) for row, some in enumerate(ranked) for one in some[1:]],
        )
        reordering = _with_orders(reordering, states, dict(enumerate(best)))
        reordered, leaves = head.leaf_states(states, best)
    rows = [*range(len(longest)), *(row for row, _ in others)]
    if others:
        chosen = torch.tensor([row for row, _ in others], device=states.device)
        more, more_leaves = head.leaf_states(states[chosen], [derivation for _, derivation in others])
        reordered, leaves = _stacked(reordered, more), torch.cat([leaves, more_leaves])
    decoder: Decoder = head.decoder(reordered, leaves)
    by_order = search(decoder, [longest[row] for row in rows], n_best=beam)
    came_from: list[dict[tuple[int, ...], int]] = [
        {} for _ in longest
    ]  # outputs, and the first order of each
    for place, (row, hypotheses) in enumerate(zip(rows, by_order, strict=True)):
        for one in hypotheses:
            if one.score > -torch.inf:
                came_from[row].setdefault(one.words, place)
    found = [[Hypothesis(words, nan) for words in outputs] for outputs in came_from]
    if rank is None:
        return found, reordering
    found = rank(found)
    winners = [
        came_from[row].get(hypotheses[0].words, row) if hypotheses else row
        for row, hypotheses in enumerate(found)
    ]
    taken = {
        row: others[place - len(longest)][1] for row, place in enumerate(winners) if place >= len(longest)
    }
    return [hypotheses[:n_best] for hypotheses in found], _with_orders(reordering, states, taken)


def _other_orders(reordering: Reordering, lengths: Tensor, beam: int) -> list[tuple[int, Derivation]]:
    """Sentences and derivations whose orders are neither the reorderer's nor each other's."""
    distribution, order = reordering.distribution, reordering.order
    if distribution is None or order is None or beam == 1:
        return []
    others = []
    for row, derivations in enumerate(distribution.top_derivations(beam)):
        seen = {tuple(order[row, : int(lengths[row])].tolist())}
        for derivation in derivations:
            if derivation.order not in seen:
                seen.add(derivation.order)
                others.append((row, derivation))
    return others


def _with_orders(reordering: Reordering, states: Tensor, taken: dict[int, Derivation]) -> Reordering:
    """The reordering with other orders for some sentences."""
    if not taken or reordering.order is None:
        return reordering
    order = reordering.order.clone()
    for row, derivation in taken.items():
        order[row, : len(derivation.order)] = torch.tensor(derivation.order, device=order.device)
    derivations = reordering.derivations
    if derivations is not None:
        derivations = [taken.get(row, derivation) for row, derivation in enumerate(derivations)]
    return replace(
        reordering,
        states=take_order(states, order),
        matrix=matrix_of_order(order, states),
        order=order,
        derivations=derivations,
    )


def _stacked(first: Tensor, second: Tensor) -> Tensor:
    """One batch of two, padded to the longer sentences."""
    most = max(first.shape[1], second.shape[1])
    return torch.cat(
        [functional.pad(states, (0, 0, 0, most - states.shape[1])) for states in (first, second)]
    )
