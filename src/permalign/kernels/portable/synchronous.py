"""Separable derivations that write outputs, in plain torch: charts over source spans and output spans, and walks.

The cells of a source span (i,k) are a matrix over output fenceposts (p,q), LOG_ZERO where nothing is possible, and a
rule is a product of two such matrices in logarithms. It is computed from exponentials, scaled by the largest entry of
each row of the first factor and of each column of the second; entries that come close to underflow are summed again in
logarithms. Charts are in double precision. In normal form, a left child of rule R counts only derivations whose topmost
rule is the other one.

Walks build derivations from the root of such a chart down, for all samples of all sentences (*walkers*) at once. A
walker stands at a source span (i,k), an output span (p,q) and a *state*: a label; in normal form the rule that a left
child may not use; or -1. It chooses that its span is a leaf (a token or a phrase), or it chooses a split, a rule, the
output fencepost r between the two children, and the children's labels if there are labels.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from permalign.kernels.layout import LEAF, attached_zeros, leaf_spans, length_of, mask_padding, width_block
from permalign.kernels.numerics import LOG_ZERO
from permalign.kernels.sampling import choose


@dataclass(frozen=True)
class Chart:
    """Log-weights of all cells: lists by width (from 1), each ``(batch, start, p, q)``.

    Attributes:
        leaves: the weights of spans as leaves, for the widths that leaves have.
        totals: the weights of spans, however they are derived.
        as_left: two for each width: the weights of spans as the left child of a straight and of an inverted rule,
            which differ in normal form.
    """

    leaves: list[Tensor]
    totals: list[Tensor]
    as_left: list[tuple[Tensor, Tensor]]


def inside(
    scores: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    normal_form: bool = False,
    maximise: bool = False,
    kept: Tensor | None = None,
) -> tuple[Tensor, Chart]:
    """The log of the summed weight of all derivations of the outputs, ``(batch,)``, and the chart; O(n^3 m^3).

        C(i,i+1,p,q) = segments[i, p, q - p]
        C(i,k,p,q) = logsumexp over j and r of { score_S + C(i,j,p,r) + C(j,k,r,q),
                                                 score_I + C(j,k,p,r) + C(i,j,r,q) }

    Where phrases are leaves, ``segments[span, p, q - p]`` is one more term of C(i,k,p,q). The result is ``C(0,n,0,m)``,
    LOG_ZERO or less where an output is impossible. ``segments`` are ``(batch, leaf, start, size)``, leaves packed as
    spans are; they must be finite except at padding. With ``kept`` ``(batch, spans, p, q)``, the sum is over the
    derivations that have only kept cells.
    """
    max_length = length_of(scores)
    masked = mask_padding(scores, lengths).double()
    leaves = leaves_of(segments.double(), max_length, lengths, target_lengths)
    of_width = None if kept is None else kept.split(list(range(max_length, 0, -1)), dim=1)
    if of_width is not None:
        leaves[0] = torch.where(of_width[0], leaves[0], LOG_ZERO)
    chart = Chart(leaves, leaves[:1], [(leaves[0], leaves[0])])
    roots = [leaves[0][:, 0]]
    for width in range(2, max_length + 1):
        straight, inverted = _products(chart, masked, width, maximise)
        possible = band(segments, lengths, target_lengths, width)[:, None]
        if of_width is not None:
            possible = possible & of_width[width - 1]
        straight, inverted = (torch.where(possible, rule, LOG_ZERO) for rule in (straight, inverted))
        if width <= len(leaves):
            leaf = torch.where(possible, leaves[width - 1], LOG_ZERO)
            total = _sum_or_best([straight, inverted, leaf], maximise)
            straight, inverted = (_sum_or_best([rule, leaf], maximise) for rule in (straight, inverted))
        else:
            total = _sum_or_best([straight, inverted], maximise)
        chart.totals.append(total)
        chart.as_left.append((inverted, straight) if normal_form else (total, total))
        roots.append(total[:, 0])
    row = torch.arange(scores.shape[0], device=scores.device)
    root = torch.stack(roots, 1)[row, lengths - 1, 0, target_lengths]
    return root.to(scores.dtype) + attached_zeros(mask_padding(scores, lengths)), chart


def _sum_or_best(alternatives: list[Tensor], maximise: bool) -> Tensor:
    """The log of the summed weights of all alternatives, or the largest of them."""
    stacked = torch.stack(alternatives)
    return stacked.amax(0) if maximise else stacked.logsumexp(0)


def leaves_of(segments: Tensor, max_length: int, lengths: Tensor, target_lengths: Tensor) -> list[Tensor]:
    """Segments by their start and end in the output: for each width of leaves ``(batch, first token, p, q)``."""
    _, leaves, starts, sizes = segments.shape
    first, width = (indices.to(segments.device) for indices in leaf_spans(max_length, leaves))
    fencepost = torch.arange(starts, device=segments.device)
    size = fencepost - fencepost[:, None]  # (p, q)
    inside_source = first + width <= lengths[:, None]
    possible = (size >= 0) & (size < sizes) & (fencepost <= target_lengths[:, None, None])
    by_end = segments[:, :, fencepost[:, None], size.clamp(0, sizes - 1)]
    cells = torch.where(inside_source[:, :, None, None] & possible[:, None], by_end, LOG_ZERO)
    return list(cells.split(width.bincount()[1:].tolist(), dim=1))


def band(segments: Tensor, lengths: Tensor, target_lengths: Tensor, width: int) -> Tensor:
    """Which cells of the spans of a width can be part of a whole derivation, ``(batch, p, q)``."""
    fencepost, max_segment_length = (
        torch.arange(segments.shape[2], device=segments.device),
        segments.shape[3] - 1,
    )
    size = fencepost - fencepost[:, None]
    # the tokens outside the span can write only so many; it must write the rest
    fewest = (target_lengths - (lengths - width) * max_segment_length)[:, None, None]
    in_target = fencepost <= target_lengths[:, None, None]
    return (size >= 0) & (size <= width * max_segment_length) & (size >= fewest) & in_target


def _children(chart: Chart, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The children of all spans of a width: left ones under straight and under inverted rules, and right ones.

    Each is ``(batch, start, split, p, q)``.
    """
    starts = chart.totals[0].shape[1] - width + 1
    inner = range(1, width)
    left_straight, left_inverted = (
        torch.stack([chart.as_left[left - 1][rule][:, :starts] for left in inner], 2) for rule in (0, 1)
    )
    right = torch.stack([chart.totals[width - left - 1][:, left : left + starts] for left in inner], 2)
    return left_straight, left_inverted, right


def _products(chart: Chart, scores: Tensor, width: int, maximise: bool) -> tuple[Tensor, Tensor]:
    """The weights ``(batch, start, p, q)`` of all spans of a width, by straight and by inverted rules."""
    max_length = length_of(scores)
    left_straight, left_inverted, right = _children(chart, width)
    straight_score, inverted_score = width_block(scores, max_length, width)[..., None, None].unbind(3)
    multiply = _best_product if maximise else _log_product
    straight = straight_score + multiply(left_straight, right)
    inverted = inverted_score + multiply(right, left_inverted)
    if maximise:
        return straight.amax(2), inverted.amax(2)
    return straight.logsumexp(2), inverted.logsumexp(2)


def _best_product(first: Tensor, second: Tensor) -> Tensor:
    """``max_r first[p,r] + second[r,q]``."""
    return (first[..., None] + second[..., None, :, :]).amax(-2)


def _log_product(first: Tensor, second: Tensor) -> Tensor:
    """``logsumexp_r first[p,r] + second[r,q]`` over the last two axes of both."""
    row_top = first.detach().amax(-1, keepdim=True)
    column_top = second.detach().amax(-2, keepdim=True)
    product = (first - row_top).exp() @ (second - column_top).exp()
    # entries so small that terms which vanished may matter; 1.0 stands in for them, so that no gradient becomes NaN
    lost = product.detach() < torch.finfo(product.dtype).tiny ** 0.6
    logs = torch.where(lost, 1.0, product).log() + row_top + column_top
    fenceposts = product.shape[-1]
    forward = torch.ones(fenceposts, fenceposts, dtype=torch.bool, device=product.device).triu()  # p <= q
    logs = torch.where(forward, logs, LOG_ZERO)
    indices = (lost & forward).nonzero(as_tuple=True)
    if indices[0].numel():
        *outer, p, q = indices
        exact = (first[(*outer, p)] + second.transpose(-1, -2)[(*outer, q)]).logsumexp(-1)
        logs = logs.index_put(indices, exact)
    return logs


# --- Walks from the root down ---------------------------------------------------------------------------------


class Walks(NamedTuple):
    """Derivations of outputs.

    Attributes:
        nodes: ``(samples, batch, n - 1, 5)``, internal nodes (i, j, k, rule, state) in pre-order; -1 beyond the last.
        leaves: ``(samples, batch, n)``, the states of tokens.
        orders: ``(samples, batch, n)``, the token at every position; padding stays where it is.
        sizes: ``(samples, batch, n)``, how many output tokens the leaf that begins at a position writes; 0 where none
            begins.
        widths: ``(samples, batch, n)``, how many source tokens that leaf covers; 0 where none begins.
    """

    nodes: Tensor
    leaves: Tensor
    orders: Tensor
    sizes: Tensor
    widths: Tensor

    @classmethod
    def empty(cls, walkers: int, max_length: int, device: torch.device) -> "Walks":
        """Walks that have met no node and no leaf yet, with one axis of walkers in place of samples and batch."""
        orders = torch.arange(max_length, device=device).repeat(walkers, 1)
        nodes = torch.full((walkers, max_length - 1, 5), -1, device=device)
        return cls(
            nodes, torch.full_like(orders, -1), orders, torch.zeros_like(orders), torch.zeros_like(orders)
        )

    def record_leaves(self, at: Tensor, spans: Tensor) -> None:
        """Record that walkers ``at`` have come to leaves: spans (start, end, output position, p, q, state)."""
        start, end, position, p, q, state = spans.unbind(-1)
        self.leaves[at, start] = state
        self.sizes[at, position], self.widths[at, position] = q - p, end - start
        for token in range(int((end - start).max()) if len(at) else 0):
            inside_leaf = start + token < end
            self.orders[at[inside_leaf], (position + token)[inside_leaf]] = (start + token)[inside_leaf]


class Options(Protocol):
    """What a walker can choose from."""

    def values(self, row: Tensor, start: Tensor, end: Tensor, p: Tensor, q: Tensor, state: Tensor) -> Tensor:
        """Log-weights ``(walkers, options)``."""
        ...

    def unravel(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Split point, rule, output fencepost r, and the states of the left and the right child."""
        ...


def walk_options(
    options: Options,
    roots: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    max_length: int,
    draws: Tensor | None,
) -> Walks:
    """Build derivations from the root down by the heaviest option of every span, or one drawn at random (see `choose`).

    Args:
        options: what a walker can choose from.
        roots: ``(samples, batch)``, the states of the roots; -2 where there is nothing to walk.
        lengths: ``(batch,)``, the lengths of the sources.
        target_lengths: ``(batch,)``, the lengths of the outputs.
        max_length: n, the length that sources are padded to.
        draws: ``(samples, batch, n - 1)`` in [0, 1), or None to take the heaviest options.
    """
    samples, batch = roots.shape
    count, device = samples * batch, roots.device
    row = torch.arange(batch, device=device).repeat(samples)
    walks = Walks.empty(count, max_length, device)
    # a stack of open spans per walker: start, end, output position, p, q, state
    stack = torch.zeros((count, max_length + 2, 6), dtype=torch.int64, device=device)
    stack[:, 0, 1], stack[:, 0, 4] = lengths.repeat(samples), target_lengths.repeat(samples)
    stack[:, 0, 5] = roots.flatten()
    depth = (roots.flatten() > -2).long()
    step = torch.zeros_like(depth)
    while bool((depth > 0).any()):
        at = (depth > 0).nonzero().squeeze(1)
        depth[at] -= 1
        spans = stack[at, depth[at]]
        single = spans[:, 1] - spans[:, 0] == 1
        walks.record_leaves(at[single], spans[single])
        at, spans = at[~single], spans[~single]
        if not at.numel():
            continue
        start, end, _, p, q, state = spans.unbind(-1)
        draw = None if draws is None else draws.reshape(count, -1)[at, step[at]]
        chosen = options.unravel(choose(options.values(row[at], start, end, p, q, state), draw))
        step[at] += 1
        leaf = chosen[1] == LEAF
        walks.record_leaves(at[leaf], spans[leaf])
        at, spans = at[~leaf], spans[~leaf]
        start, end, position, p, q, state = spans.unbind(-1)
        inner, rule, r, left_state, right_state = (choice[~leaf] for choice in chosen)
        middle, straight = start + 1 + inner, rule == 0
        walks.nodes[at, step[at] - 1] = torch.stack([start, middle, end, rule, state], -1)
        left_output = torch.where(straight, p, r), torch.where(straight, r, q)
        right_output = torch.where(straight, r, p), torch.where(straight, q, r)
        left_position = torch.where(straight, position, position + end - middle)
        right_position = torch.where(straight, position + middle - start, position)
        # the left child is pushed last, so that it is visited first: nodes come in pre-order
        stack[at, depth[at]] = torch.stack([middle, end, right_position, *right_output, right_state], -1)
        stack[at, depth[at] + 1] = torch.stack([start, middle, left_position, *left_output, left_state], -1)
        depth[at] += 2
    return Walks(*(field.unflatten(0, (samples, batch)) for field in walks))


def dense(cells: list[Tensor], elsewhere: float = LOG_ZERO) -> Tensor:
    """Cells by width and start as ``(batch, i, k, ...)``, filled with ``elsewhere`` where there is no span."""
    batch, max_length, *rest = cells[0].shape
    table = cells[0].new_full((batch, max_length + 1, max_length + 1, *rest), elsewhere)
    for width, block in enumerate(cells, start=1):
        start = torch.arange(max_length - width + 1, device=table.device)
        table[:, start, start + width] = block.detach()
    return table


def dense_scores(scores: Tensor) -> Tensor:
    """Split scores as ``(batch, i, k, inner, rule)``."""
    max_length, batch = length_of(scores), scores.shape[0]
    table = scores.new_full((batch, max_length + 1, max_length + 1, max(max_length - 1, 1), 2), LOG_ZERO)
    for width in range(2, max_length + 1):
        start = torch.arange(max_length - width + 1, device=scores.device)
        table[:, start, start + width, : width - 1] = width_block(scores, max_length, width).detach()
    return table


@dataclass(frozen=True)
class PlainOptions:
    """A span as a leaf, or its splits, rules and output fenceposts r; in normal form a state is the forbidden rule."""

    scores: Tensor  # (batch, i, k, inner, rule)
    leaves: Tensor  # (batch, i, k, p, q)
    totals: Tensor
    as_left: tuple[Tensor, Tensor]
    normal_form: bool

    @staticmethod
    def of(chart: Chart, scores: Tensor, normal_form: bool) -> "PlainOptions":
        """Options from a chart and from the scores it was computed from."""
        as_left = tuple(dense([both[rule] for both in chart.as_left]) for rule in (0, 1))
        of_spans = dense_scores(scores), dense(chart.leaves, -torch.inf), dense(chart.totals)
        return PlainOptions(*of_spans, (as_left[0], as_left[1]), normal_form)

    def values(self, row: Tensor, start: Tensor, end: Tensor, p: Tensor, q: Tensor, state: Tensor) -> Tensor:
        """Log-weights ``(walkers, options)`` of the span as a leaf, and of all (split point, rule, r)."""
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
        forbidden = torch.arange(2, device=row.device) == state[:, None]
        values = values.masked_fill(forbidden[:, None, :, None], LOG_ZERO).flatten(1)
        return torch.cat([leaf[:, None], values], 1)

    def unravel(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Split point, rule, output fencepost r, and the rules that the children may not use."""
        fenceposts = self.totals.shape[-1]
        is_leaf, chosen = chosen == 0, chosen - 1
        rule, free = torch.where(is_leaf, LEAF, chosen // fenceposts % 2), torch.full_like(chosen, -1)
        return (
            chosen // (2 * fenceposts),
            rule,
            chosen % fenceposts,
            rule if self.normal_form else free,
            free,
        )


def walk(
    scores: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None = None,
    normal_form: bool = False,
) -> Walks:
    """Derivations of the outputs: the best ones, or drawn by ``uniforms`` ``(samples, batch, n - 1)``."""
    max_segment_length = segments.shape[3] - 1
    _, chart = inside(scores, segments, lengths, target_lengths, normal_form, maximise=uniforms is None)
    masked = mask_padding(scores, lengths).double()
    options = PlainOptions.of(chart, masked, normal_form)
    roots = torch.where(target_lengths <= lengths * max_segment_length, -1, -2)
    roots = roots.expand(1 if uniforms is None else uniforms.shape[0], -1)
    return walk_options(options, roots, lengths, target_lengths, length_of(scores), uniforms)
