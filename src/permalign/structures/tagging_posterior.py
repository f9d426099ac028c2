"""The posterior of a sentence's trees once its tagging has been seen."""

from typing import NamedTuple

import torch
from torch import Tensor

from permalign import kernels
from permalign.kernels.layout import split_offset
from permalign.shapes import Float, Int
from permalign.structures.derivations import Derivation, Tree
from permalign.structures.log_space import LOG_ZERO


class TaggingPosterior(NamedTuple):
    """The exact posterior of the derivations of a single sentence, given an output with one word for each token.

    ``p(D | output) = p(D) prod_p exp(emissions[token at p, p]) / p(output)``

    Attributes:
        log_likelihood: the log-probability of the output, summed over all derivations.
        derivation: the most probable derivation given the output, with its posterior log-probability.
        rules: ``(splits, 2)``, how probable it is that the derivation contains each split with each rule.
        alignment: ``(token, position)``, how probable it is that the token wrote the word at that position.
    """

    log_likelihood: float
    derivation: Derivation
    rules: Tensor
    alignment: Tensor


def tagging_posterior(
    scores: Float[Tensor, "1 splits 2"],
    lengths: Int[Tensor, " 1"],
    normal_form: bool,
    emissions: Float[Tensor, "1 token position"],
    log_partition: float,
) -> TaggingPosterior:
    """The posterior of `permalign.SeparablePermutation`, in double precision. O(n^4).

    Marginals are gradients of the log of the summed weight; the best derivation replaces sums by maxima.

    Args:
        scores: the scores of the splits of a single sentence.
        lengths: the length of that sentence, which has no padding.
        normal_form: whether a left child may not repeat its parent's rule.
        emissions: ``[token, position]``, the log-probability that the token writes the output's word there.
        log_partition: the log of the summed weight of all derivations, without emissions.

    Raises:
        ValueError: no derivation can write the output.
    """
    scores = scores.detach().double().requires_grad_()
    finite = emissions.detach().double().clamp(min=LOG_ZERO).requires_grad_()
    with torch.enable_grad():
        total = kernels.tagging_inside(scores, finite, lengths, normal_form)
        rules, alignment = torch.autograd.grad(total.sum(), (scores, finite))
    log_weight = float(total.detach())
    if log_weight < LOG_ZERO / 2:
        raise ValueError("no derivation of the sentence can write this output.")
    weight, tree = _best_tree(scores.detach()[0], finite.detach()[0], normal_form)
    return TaggingPosterior(
        log_likelihood=log_weight - log_partition,
        derivation=Derivation(tree, tree.order, min(0.0, weight - log_weight)),
        rules=rules[0],
        alignment=alignment[0],
    )


def _best_tree(scores: Tensor, emissions: Tensor, normal_form: bool) -> tuple[float, Tree]:
    """The heaviest derivation with its emissions, and its weight.

    A span's chart is indexed ``[start, position, banned]`` by the position where its output begins and by the rule it
    may not use (0 straight, 1 inverted, 2 none): in normal form a left child may not repeat its parent's rule.

        B(i,k,p,b) = max_{j, R != b} score_R(i,j,k) + (S) B(i,j,p,R) + B(j,k,p+j-i,2)
                                                      (I) B(j,k,p,2) + B(i,j,p+k-j,R)
    """
    length = emissions.shape[0]
    charts = {1: emissions[:, :, None].expand(-1, -1, 3)}
    choices: dict[int, Tensor] = {}
    for width in range(2, length + 1):
        room = length - width + 1  # the number of starts, and of positions
        first = split_offset(length, width)
        block = scores[first : first + room * (width - 1)].view(room, width - 1, 2)
        options = []  # two for each middle: straight, inverted
        for left in range(1, width):
            right = width - left
            left_chart, right_chart = charts[left], charts[right]
            banned = (0, 1) if normal_form else (2, 2)
            straight = (
                left_chart[:room, :room, banned[0]] + right_chart[left : left + room, left : left + room, 2]
            )
            inverted = (
                left_chart[:room, right : right + room, banned[1]] + right_chart[left : left + room, :room, 2]
            )
            options += [block[:, left - 1, :1] + straight, block[:, left - 1, 1:] + inverted]
        weights = torch.stack(options, dim=-1).view(room, room, width - 1, 2)
        by_rule, middles = weights.max(2)  # (start, position, rule)
        best, rule = by_rule.max(-1)
        # the last axis is the banned rule: without straight rules only inverted ones are left, and vice versa
        charts[width] = torch.stack([by_rule[..., 1], by_rule[..., 0], best], dim=-1)
        chosen = torch.stack([torch.ones_like(rule), torch.zeros_like(rule), rule], dim=-1)
        choices[width] = torch.stack([middles.gather(-1, chosen) + 1, chosen], dim=-1)
    return float(charts[length][0, 0, 2]), Tree.from_nodes(_walk(choices, length, normal_form), length)


def _walk(choices: dict[int, Tensor], length: int, normal_form: bool) -> list[tuple[int, int, int, int]]:
    """The nodes of the best tree in pre-order."""
    nodes, waiting = [], [(0, length, 0, 2)]
    while waiting:
        start, end, position, banned = waiting.pop()
        if end - start == 1:
            continue
        left, rule = choices[end - start][start, position, banned].tolist()
        middle = start + left
        nodes.append((start, middle, end, rule))
        left_position, right_position = (
            (position, position + left) if rule == 0 else (position + end - middle, position)
        )
        waiting.append((middle, end, right_position, 2))
        waiting.append((start, middle, left_position, rule if normal_form else 2))
    return nodes
