"""From charts over source spans and output spans to derivations, in plain torch and for all walkers at once.

A walker stands at a source span (i,k), an output span (p,q) and a *state*: a label, or the rule that a left child may
not use in normal form, or -1. It chooses a split, a rule and a middle of its words (and its children's labels), or to
be a phrase, a leaf of several tokens.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from permalign.kernels.portable import width_block, words_of
from permalign.kernels.portable_synchronous import LOG_ZERO, Chart

LEAF = 2  # in place of a rule: the span is a leaf


class Walks(NamedTuple):
    """Derivations of outputs.

    Attributes:
        nodes: ``(samples, batch, n - 1, 5)``, internal nodes (i, j, k, rule, state) in pre-order; the others are -1.
        leaves: ``(samples, batch, n)``, the states of tokens.
        orders: ``(samples, batch, n)``, the token at every position; padding keeps its place.
        sizes: ``(samples, batch, n)``, how many words the leaf that begins at a position writes; 0 where none begins.
        widths: ``(samples, batch, n)``, how many tokens it has; 0 where none begins.
    """

    nodes: Tensor
    leaves: Tensor
    orders: Tensor
    sizes: Tensor
    widths: Tensor

    @classmethod
    def nowhere(cls, walkers: int, words: int, device: torch.device) -> "Walks":
        """Walkers ``(walkers, ...)`` that have met nothing yet."""
        orders = torch.arange(words, device=device).repeat(walkers, 1)
        nodes = torch.full((walkers, words - 1, 5), -1, device=device)
        return cls(
            nodes, torch.full_like(orders, -1), orders, torch.zeros_like(orders), torch.zeros_like(orders)
        )

    def settle(self, at: Tensor, spans: Tensor) -> None:
        """Walkers have come to leaves: spans (start, end, position, first word, end of words, state)."""
        start, end, position, p, q, state = spans.unbind(-1)
        self.leaves[at, start] = state
        self.sizes[at, position], self.widths[at, position] = q - p, end - start
        for token in range(int((end - start).max()) if len(at) else 0):
            there = start + token < end
            self.orders[at[there], (position + token)[there]] = (start + token)[there]


class Options(Protocol):
    """What a walker can choose from."""

    def values(self, row: Tensor, start: Tensor, end: Tensor, p: Tensor, q: Tensor, state: Tensor) -> Tensor:
        """Log-weights ``(walkers, options)``."""
        ...

    def unravel(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Inner split, rule, middle of words, and the states of the left and the right child."""
        ...


def walk(
    options: Options, roots: Tensor, lengths: Tensor, target_lengths: Tensor, words: int, draws: Tensor | None
) -> Walks:
    """Walk from the root down, taking the heaviest option of every span met, or one drawn by a uniform number.

    Args:
        options: what there is to choose from.
        roots: ``(samples, batch)``, the states of the roots; -2 where there is nothing to walk.
        lengths: ``(batch,)``, of the sources; ``target_lengths`` of the outputs.
        words: n, the room for source tokens.
        draws: ``(samples, batch, n - 1)`` in [0, 1), or None for the best.
    """
    samples, batch = roots.shape
    count, device = samples * batch, roots.device
    row = torch.arange(batch, device=device).repeat(samples)
    found = Walks.nowhere(count, words, device)
    # a stack of open spans per walker: start, end, position, first word, end of words, state
    stack = torch.zeros((count, words + 2, 6), dtype=torch.int64, device=device)
    stack[:, 0, 1], stack[:, 0, 4] = lengths.repeat(samples), target_lengths.repeat(samples)
    stack[:, 0, 5] = roots.flatten()
    depth = (roots.flatten() > -2).long()
    step = torch.zeros_like(depth)
    while bool((depth > 0).any()):
        at = (depth > 0).nonzero().squeeze(1)
        depth[at] -= 1
        spans = stack[at, depth[at]]
        single = spans[:, 1] - spans[:, 0] == 1
        found.settle(at[single], spans[single])
        at, spans = at[~single], spans[~single]
        if not at.numel():
            continue
        start, end, _, p, q, state = spans.unbind(-1)
        draw = None if draws is None else draws.reshape(count, -1)[at, step[at]].double()
        chosen = options.unravel(choose(options.values(row[at], start, end, p, q, state), draw))
        step[at] += 1
        leaf = chosen[1] == LEAF
        found.settle(at[leaf], spans[leaf])
        at, spans = at[~leaf], spans[~leaf]
        start, end, position, p, q, state = spans.unbind(-1)
        inner, rule, r, left_state, right_state = (one[~leaf] for one in chosen)
        middle, straight = start + 1 + inner, rule == 0
        found.nodes[at, step[at] - 1] = torch.stack([start, middle, end, rule, state], -1)
        left_words = torch.where(straight, p, r), torch.where(straight, r, q)
        right_words = torch.where(straight, r, p), torch.where(straight, q, r)
        left_position = torch.where(straight, position, position + end - middle)
        right_position = torch.where(straight, position + middle - start, position)
        stack[at, depth[at]] = torch.stack([middle, end, right_position, *right_words, right_state], -1)
        stack[at, depth[at] + 1] = torch.stack([start, middle, left_position, *left_words, left_state], -1)
        depth[at] += 2
    return Walks(*(part.unflatten(0, (samples, batch)) for part in found))


def choose(values: Tensor, uniform: Tensor | None) -> Tensor:
    """The heaviest option of every row, or one drawn by inverting the distribution function."""
    if uniform is None:
        return values.argmax(-1)
    cumulative = values.softmax(-1).cumsum(-1)
    chosen = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1)
    option = torch.arange(values.shape[-1], device=values.device)
    last = torch.where(values > LOG_ZERO / 2, option, -1).amax(-1)
    return torch.where(last < 0, values.argmax(-1), torch.minimum(chosen, last))


def dense(cells: list[Tensor], elsewhere: float = LOG_ZERO) -> Tensor:
    """Cells by width and start as ``(batch, i, k, ...)``, and what stands where there are none."""
    batch, words, *rest = cells[0].shape
    table = cells[0].new_full((batch, words + 1, words + 1, *rest), elsewhere)
    for width, block in enumerate(cells, start=1):
        start = torch.arange(words - width + 1, device=table.device)
        table[:, start, start + width] = block.detach()
    return table


def dense_scores(scores: Tensor) -> Tensor:
    """Split scores as ``(batch, i, k, inner, rule)``."""
    words, batch = words_of(scores), scores.shape[0]
    table = scores.new_full((batch, words + 1, words + 1, max(words - 1, 1), 2), LOG_ZERO)
    for width in range(2, words + 1):
        start = torch.arange(words - width + 1, device=scores.device)
        table[:, start, start + width, : width - 1] = width_block(scores, words, width).detach()
    return table


@dataclass(frozen=True)
class PlainOptions:
    """To be a leaf, and splits, rules and middles of words; in normal form a state is the rule that is barred."""

    scores: Tensor  # (batch, i, k, inner, rule)
    leaves: Tensor  # (batch, i, k, p, q)
    totals: Tensor
    as_left: tuple[Tensor, Tensor]
    normal_form: bool

    @staticmethod
    def of(chart: Chart, scores: Tensor, normal_form: bool) -> "PlainOptions":
        """Of a chart and the scores it was made of."""
        as_left = tuple(dense([both[rule] for both in chart.as_left]) for rule in (0, 1))
        of_spans = dense_scores(scores), dense(chart.leaves, -torch.inf), dense(chart.totals)
        return PlainOptions(*of_spans, (as_left[0], as_left[1]), normal_form)

    def values(self, row: Tensor, start: Tensor, end: Tensor, p: Tensor, q: Tensor, state: Tensor) -> Tensor:
        """Log-weights ``(walkers, options)`` of the span as a leaf, and of all (inner, rule, middle of words)."""
        leaf = self.leaves[row, start, end, p, q]
        inner = torch.arange(self.scores.shape[3], device=row.device)
        middle = (start[:, None] + 1 + inner).clamp(max=self.totals.shape[1] - 1)  # (walkers, inner)
        row, start, end, p, q = (index[:, None] for index in (row, start, end, p, q))
        score = self.scores[row, start, end, inner]  # (walkers, inner, rule)
        right_first = self.totals[row, middle, end, p]
        right_second = self.totals.transpose(3, 4)[row, middle, end, q]
        straight = score[..., :1] + self.as_left[0][row, start, middle, p] + right_second
        inverted = score[..., 1:] + right_first + self.as_left[1].transpose(3, 4)[row, start, middle, q]
        values = torch.stack([straight, inverted], 2)  # (walkers, inner, rule, r)
        barred = torch.arange(2, device=row.device) == state[:, None]
        values = values.masked_fill(barred[:, None, :, None], LOG_ZERO).flatten(1)
        return torch.cat([leaf[:, None], values], 1)

    def unravel(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Inner split, rule, middle of words, and the rules that the children may not use."""
        posts = self.totals.shape[-1]
        is_leaf, chosen = chosen == 0, chosen - 1
        rule, free = torch.where(is_leaf, LEAF, chosen // posts % 2), torch.full_like(chosen, -1)
        return (
            chosen // (2 * posts),
            rule,
            chosen % posts,
            rule if self.normal_form else free,
            free,
        )


@dataclass(frozen=True)
class LabelledOptions:
    """Splits, rules, middles of words and the labels of both children; a state is a label."""

    scores: Tensor  # (batch, i, k, inner, rule)
    chart: Tensor  # (batch, i, k, p, q, K)
    rules: Tensor  # (2, K, K, K)

    def values(self, row: Tensor, start: Tensor, end: Tensor, p: Tensor, q: Tensor, state: Tensor) -> Tensor:
        """Log-weights ``(walkers, options)`` of all (inner, rule, middle of words, left label, right label)."""
        inner = torch.arange(self.scores.shape[3], device=row.device)
        middle = (start[:, None] + 1 + inner).clamp(max=self.chart.shape[1] - 1)
        row, start, end, p, q = (index[:, None] for index in (row, start, end, p, q))
        by_end = self.chart.transpose(3, 4)
        left = self.chart[row, start, middle, p], by_end[row, start, middle, q]  # (walkers, inner, r, K)
        right = by_end[row, middle, end, q], self.chart[row, middle, end, p]
        score = self.scores[row, start, end, inner]  # (walkers, inner, rule)
        values = torch.stack(
            [left[rule][..., :, None] + right[rule][..., None, :] for rule in (0, 1)], 2
        )  # (walkers, inner, rule, r, b, c)
        values = values + score[..., None, None, None] + self.rules.transpose(0, 1)[state][:, None, :, None]
        return values.flatten(1)

    def unravel(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Inner split, rule, middle of words, and the children's labels."""
        labels, posts = self.chart.shape[-1], self.chart.shape[3]
        rest, right = chosen // labels, chosen % labels
        rest, left = rest // labels, rest % labels
        return rest // (2 * posts), rest // posts % 2, rest % posts, left, right
