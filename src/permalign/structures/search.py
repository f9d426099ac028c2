"""Searching among derivations: the k best, and the most probable order with a certificate."""

from collections.abc import Callable, Iterator
from itertools import islice
from math import exp
from typing import NamedTuple

import torch
from torch import Tensor

from permalign import kernels
from permalign.kernels.layout import length_of
from permalign.structures.best_first import BestFirst
from permalign.structures.derivations import Derivation, Tree

Order = tuple[int, ...]


class ProbableOrder(NamedTuple):
    """What `SeparablePermutation.most_probable_order` found, for every sentence of the batch.

    Attributes:
        order: ``(batch, n)``, the most probable order found.
        log_prob: ``(batch,)``, its log-probability.
        gap: ``(batch,)``, by how much the probability of any other order could exceed it; 0 when it is proven best.
    """

    order: Tensor
    log_prob: Tensor
    gap: Tensor


def derivations_of(scores: Tensor, normal_form: bool) -> Iterator[Derivation]:
    """All derivations of a single sentence, scores ``(1, T, 2)``, best first."""
    words = length_of(scores)
    lengths = torch.tensor([words], device=scores.device)
    log_partition = kernels.inside(scores, lengths, normal_form)[0].item()
    best = kernels.best_inside(scores, lengths, normal_form)[1]
    for weight, nodes in BestFirst(scores[0].tolist(), best[0].tolist(), words, normal_form):
        tree = Tree.from_nodes(nodes, words)
        yield Derivation(tree, tree.order, min(0.0, weight - log_partition))


def search_order(
    ranked: Iterator[Derivation],
    log_probs_of: Callable[[list[Order]], list[float]],
    limit: int,
    normal_form: bool,
) -> tuple[Order, float, float]:
    """The most probable order, its log-probability, and the gap: what another order could have more.

    Takes derivations in handfuls that double, scores the new orders among them, and stops when the best has at least
    the mass that is not accounted for yet. In normal form an order has one derivation, so the first is the answer.

    Args:
        ranked: derivations, best first.
        log_probs_of: the exact log-probabilities of orders.
        limit: how many derivations to look at.
        normal_form: whether every order has one derivation.
    """
    if normal_form:
        best = next(ranked)
        return best.order, best.log_prob, 0.0
    ranked, handful = islice(ranked, limit), 1
    log_probs: dict[Order, float] = {}
    best_order: Order = ()
    gap = 1.0
    while gap > 0 and (some := list(islice(ranked, handful))):
        new = [order for order in dict.fromkeys(one.order for one in some) if order not in log_probs]
        if new:
            log_probs |= zip(new, log_probs_of(new), strict=True)
            best_order = max(log_probs, key=log_probs.__getitem__)
            unseen = 1.0 - sum(map(exp, log_probs.values()))
            gap = max(0.0, unseen - exp(log_probs[best_order]))
        # the scores of each order are a copy of their own, O(n^3)
        handful = min(2 * handful, 256, max(1, 20_000_000 // len(best_order) ** 3))
    return best_order, min(0.0, log_probs[best_order]), gap
