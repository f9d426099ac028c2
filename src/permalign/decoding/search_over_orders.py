"""Search where the likelihood is summed over all orders: candidates are found in several orders of the source."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from permalign.decoding.beam import Hypothesis
from permalign.decoding.candidates import Candidate, Candidates
from permalign.decoding.output_constraint import Constraint
from permalign.heads.base import Head
from permalign.heads.copying import CopySource
from permalign.reorderers.base import Reordering
from permalign.reorderers.discrete_order import matrix_of_order, take_order
from permalign.structures import Derivation
from permalign.text.codec import PADDING_ID

Search = Callable[..., list[list[Hypothesis]]]
"""Finds outputs: called with a decoder, the maximum output length and the constraint of each row, and ``n_best``."""


def search_over_orders(
    head: Head,
    reordering: Reordering,
    states: Tensor,
    lengths: Tensor,
    search: Search,
    max_lengths: Sequence[int],
    beam: int,
    constraints: Sequence[Constraint | None] | None = None,
    copies: CopySource | None = None,
) -> Candidates:
    """Find candidates for every sentence in several orders of its words.

    One order is the reorderer's choice, the others are those of the ``beam`` most probable derivations (where leaves
    may be phrases, all derivations come from the head). Outputs are searched in each order separately. A beam's scores
    are of one order only, so the candidates have none: their likelihood over all orders is still to be computed.

    Args:
        head: a head that can sum over orders.
        reordering: the reorderer's choice at test time, with its distribution.
        states: ``(batch, n, width)``, what the head reads, in the original order.
        lengths: ``(batch,)``, the lengths of the sentences.
        search: looks for outputs in one order.
        max_lengths: the maximum output length of each sentence.
        beam: how many outputs to look for in an order, and how many derivations to try.
        constraints: what may follow a prefix, for each sentence; None for anything.
        copies: the source words that the head can copy, in the original order; None if it does not copy.
    """
    assert reordering.distribution is not None
    phrases = head.with_copies(copies).phrase_derivations(reordering.distribution, states, lengths, beam)
    chosen: list[Derivation] | None = None
    if phrases is None:
        others = _other_orders(reordering, lengths, beam)
        reordered, leaves = reordering.states, lengths
    else:
        chosen = [derivations[0] for derivations in phrases]
        others = [
            (row, derivation) for row, derivations in enumerate(phrases) for derivation in derivations[1:]
        ]
        reordered, leaves = head.leaf_states(states, chosen)
    if others:
        rows = torch.tensor([row for row, _ in others], device=states.device)
        more_states, more_leaves = head.leaf_states(states[rows], [derivation for _, derivation in others])
        reordered = pad_sequence([*reordered, *more_states], batch_first=True)
        leaves = torch.cat([leaves, more_leaves])
    orders: list[tuple[int, Derivation | None]] = [
        (row, None if chosen is None else chosen[row]) for row in range(len(max_lengths))
    ]
    orders += others
    reordered_copies = None if copies is None else _reorder_copies(head, copies, reordering, orders)
    decoder = head.with_copies(reordered_copies).decoder(reordered, leaves)
    searches = search(
        decoder,
        [max_lengths[row] for row, _ in orders],
        constraints=None if constraints is None else [constraints[row] for row, _ in orders],
        n_best=beam,
    )
    candidates: list[dict[tuple[int, ...], Candidate]] = [{} for _ in max_lengths]
    for (row, derivation), hypotheses in zip(orders, searches, strict=True):
        for hypothesis in hypotheses:
            candidate = Candidate(hypothesis.tokens, nan, derivation)
            candidates[row].setdefault(candidate.tokens, candidate)  # the first order that led to it
    return [list(of_sentence.values()) for of_sentence in candidates]


def _other_orders(reordering: Reordering, lengths: Tensor, beam: int) -> list[tuple[int, Derivation]]:
    """Rows and derivations whose orders are neither the reorderer's nor each other's."""
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


def _reorder_copies(
    head: Head,
    copies: CopySource,
    reordering: Reordering,
    orders: Sequence[tuple[int, Derivation | None]],
) -> CopySource:
    """What the cells of every searched order copy: rows are those of ``orders``, None stands for the reorderer's."""
    own = [row for row, derivation in orders if derivation is None]
    chosen = [(row, derivation) for row, derivation in orders if derivation is not None]
    parts = []
    if own:
        if (
            reordering.order is None
        ):  # a soft matching of all sentences, beside which there are no other orders
            return copies.with_matrix(reordering.matrix)
        parts.append(copies.in_order(reordering.order))
    if chosen:
        rows = torch.tensor([row for row, _ in chosen], device=copies.ids.device)
        parts.append(head.leaf_copies(copies.select(rows), [derivation for _, derivation in chosen]))
    words = [ids for part in parts for ids in part.ids]
    return CopySource(pad_sequence(words, batch_first=True, padding_value=PADDING_ID))


def replace_orders(reordering: Reordering, states: Tensor, derivations: dict[int, Derivation]) -> Reordering:
    """The reordering with other derivations, and their orders, in some rows."""
    if not derivations or reordering.order is None:
        return reordering
    order = reordering.order.clone()
    for row, derivation in derivations.items():
        order[row, : len(derivation.order)] = torch.tensor(derivation.order, device=order.device)

    def find_derivations() -> list[Derivation]:
        unchanged = reordering.derivations or []
        return [derivations.get(row, derivation) for row, derivation in enumerate(unchanged)]

    return replace(
        reordering,
        states=take_order(states, order),
        matrix=matrix_of_order(order, states),
        order=order,
        find_derivations=None if reordering.find_derivations is None else find_derivations,
    )
