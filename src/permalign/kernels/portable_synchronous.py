"""Charts over source spans and output spans in plain torch, vectorised by width: any device, any differentiation.

The cells of a source span (i,k) are a matrix over output fenceposts (p,q), -1e30 where nothing can be, and a rule is
a product of two such matrices in logs. It is computed from exponentials, scaled by the largest entry of each row of
the first and each column of the second; products that come close to underflow are summed again in logs. Double
precision throughout. In normal form the left child of rule R is weighed by the other rule alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from permalign.kernels.portable import attached_zeros, mask_padding, width_block, words_of

LOG_ZERO = -1e30


@dataclass(frozen=True)
class Chart:
    """Log-weights of all cells: lists by width (from 1), each ``(batch, start, p, q)``.

    ``as_left`` has two entries for each width: the weight of a span as the left child of a straight and of an
    inverted rule, which differ in normal form.
    """

    totals: list[Tensor]
    as_left: list[tuple[Tensor, Tensor]]


def inside(
    scores: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    normal_form: bool = False,
    maximise: bool = False,
) -> tuple[Tensor, Chart]:
    """The log of the summed weight of all derivations of the outputs, ``(batch,)``, and the chart; O(n^3 m^3).

        C(i,i+1,p,q) = segments[i, p, q - p]
        C(i,k,p,q) = logsumexp over j and r of { score_S + C(i,j,p,r) + C(j,k,r,q),
                                                 score_I + C(j,k,p,r) + C(i,j,r,q) }

    and the result is ``C(0,n,0,m)``, -1e30 or less where an output is impossible. ``segments`` are ``(batch, token,
    start, size)``, finite where a pair has them.
    """
    words = words_of(scores)
    longest = segments.shape[3] - 1
    masked = mask_padding(scores, lengths).double()
    leaves = _leaves(segments.double(), lengths, target_lengths)
    chart = Chart([leaves], [(leaves, leaves)])
    roots = [leaves[:, 0]]
    for width in range(2, words + 1):
        straight, inverted = _products(chart, masked, width, maximise)
        possible = _band(segments, lengths, target_lengths, width, longest)[:, None]
        straight, inverted = (torch.where(possible, rule, LOG_ZERO) for rule in (straight, inverted))
        both = torch.stack([straight, inverted])
        total = both.amax(0) if maximise else both.logsumexp(0)
        chart.totals.append(total)
        chart.as_left.append((inverted, straight) if normal_form else (total, total))
        roots.append(total[:, 0])
    row = torch.arange(scores.shape[0], device=scores.device)
    root = torch.stack(roots, 1)[row, lengths - 1, 0, target_lengths]
    return root.to(scores.dtype) + attached_zeros(mask_padding(scores, lengths)), chart


def _leaves(segments: Tensor, lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """Segments by start and end, ``(batch, token, p, q)``."""
    _, tokens, starts, sizes = segments.shape
    post = torch.arange(starts, device=segments.device)
    size = post - post[:, None]  # (p, q)
    inside_source = torch.arange(tokens, device=segments.device) < lengths[:, None]
    possible = (size >= 0) & (size < sizes) & (post <= target_lengths[:, None, None])
    by_end = segments[:, :, post[:, None], size.clamp(0, sizes - 1)]
    return torch.where(inside_source[:, :, None, None] & possible[:, None], by_end, LOG_ZERO)


def _band(segments: Tensor, lengths: Tensor, target_lengths: Tensor, width: int, longest: int) -> Tensor:
    """Which cells of spans of a width can be part of the whole, ``(batch, p, q)``."""
    post = torch.arange(segments.shape[2], device=segments.device)
    size = post - post[:, None]
    fewest = (target_lengths - (lengths - width) * longest)[:, None, None]
    in_target = post <= target_lengths[:, None, None]
    return (size >= 0) & (size <= width * longest) & (size >= fewest) & in_target


def _children(chart: Chart, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of all spans of a width and all their splits ``(batch, start, split, p, q)``: left (as S, as I) and right."""
    starts = chart.totals[0].shape[1] - width + 1
    inner = range(1, width)
    left_straight, left_inverted = (
        torch.stack([chart.as_left[left - 1][rule][:, :starts] for left in inner], 2) for rule in (0, 1)
    )
    right = torch.stack([chart.totals[width - left - 1][:, left : left + starts] for left in inner], 2)
    return left_straight, left_inverted, right


def _products(chart: Chart, scores: Tensor, width: int, maximise: bool) -> tuple[Tensor, Tensor]:
    """The weights ``(batch, start, p, q)`` of all spans of a width by a straight and by an inverted rule."""
    words = words_of(scores)
    left_straight, left_inverted, right = _children(chart, width)
    straight_score, inverted_score = width_block(scores, words, width)[..., None, None].unbind(3)
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
    lost = product.detach() < torch.finfo(product.dtype).tiny ** 0.6
    answer = torch.where(lost, 1.0, product).log() + row_top + column_top
    posts = product.shape[-1]
    forward = torch.ones(posts, posts, dtype=torch.bool, device=product.device).triu()
    answer = torch.where(forward, answer, LOG_ZERO)
    place = (lost & forward).nonzero(as_tuple=True)
    if place[0].numel():
        *outer, p, q = place
        exact = (first[(*outer, p)] + second.transpose(-1, -2)[(*outer, q)]).logsumexp(-1)
        answer = answer.index_put(place, exact)
    return answer


def walk(
    scores: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None = None,
    normal_form: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivations of the outputs from the root down, a choice of split, rule and middle at every span met.

    With ``uniforms`` ``(samples, batch, n - 1)`` in [0, 1) drawn from their posterior, else the best one.

    Returns:
        nodes: ``(samples, batch, n - 1, 4)``, the internal nodes (i, j, k, rule) in pre-order, -1 beyond the last.
        orders: ``(samples, batch, n)``, the token at every position; padding keeps its place.
        sizes: ``(samples, batch, n)``, how many words the token at every position writes; 0 in padding.
    """
    maximise = uniforms is None
    _, chart = inside(scores, segments, lengths, target_lengths, normal_form, maximise)
    options = _Options.of(chart, mask_padding(scores, lengths).double())
    batch, words = scores.shape[0], words_of(scores)
    samples = 1 if uniforms is None else uniforms.shape[0]
    count, device = samples * batch, scores.device
    row, walker = torch.arange(batch, device=device).repeat(samples), torch.arange(count, device=device)
    orders = torch.arange(words, device=device).repeat(count, 1)
    sizes = torch.zeros_like(orders)
    nodes = torch.full((count, words - 1, 4), -1, device=device)
    # a stack of open spans per walker: start, end, position, first word, end of words, forbidden rule (-1: none)
    stack = torch.zeros((count, words + 2, 6), dtype=torch.int64, device=device)
    stack[:, 0, 1], stack[:, 0, 4] = lengths.repeat(samples), target_lengths.repeat(samples)
    stack[:, 0, 5] = -1
    feasible = target_lengths <= lengths * (segments.shape[3] - 1)
    depth = feasible.long().repeat(samples)
    step = torch.zeros_like(depth)
    while bool((depth > 0).any()):
        active = depth > 0
        start, end, position, p, q, forbidden = stack[walker, (depth - 1).clamp(min=0)].unbind(-1)
        depth = depth - active.long()
        leaf = active & (end - start == 1)
        orders[leaf, position[leaf]] = start[leaf]
        sizes[leaf, position[leaf]] = (q - p)[leaf]
        at = (active & ~leaf).nonzero().squeeze(1)
        if not at.numel():
            continue
        values = options.values(row[at], start[at], end[at], p[at], q[at], forbidden[at])
        draw = None if uniforms is None else uniforms.flatten(0, 1)[at, step[at]].double()
        chosen = _choose(values, draw)
        middle, rule, r = options.unravel(chosen)
        middle = start[at] + 1 + middle
        nodes[at, step[at]] = torch.stack([start[at], middle, end[at], rule], -1)
        step[at] += 1
        straight = rule == 0
        first_end, second_start = (p[at], r), (r, q[at])
        left_words = [
            torch.where(straight, one, two) for one, two in zip(first_end, second_start, strict=True)
        ]
        right_words = [
            torch.where(straight, two, one) for one, two in zip(first_end, second_start, strict=True)
        ]
        left_position = torch.where(straight, position[at], position[at] + end[at] - middle)
        right_position = torch.where(straight, position[at] + middle - start[at], position[at])
        none = torch.full_like(rule, -1)
        bound = rule if normal_form else none
        stack[at, depth[at]] = torch.stack([middle, end[at], right_position, *right_words, none], -1)
        stack[at, depth[at] + 1] = torch.stack([start[at], middle, left_position, *left_words, bound], -1)
        depth[at] += 2
    shape = (samples, batch)
    return nodes.view(*shape, words - 1, 4), orders.view(*shape, words), sizes.view(*shape, words)


def _choose(values: Tensor, uniform: Tensor | None) -> Tensor:
    """The heaviest option of every row, or one drawn by inverting the distribution function."""
    if uniform is None:
        return values.argmax(-1)
    cumulative = values.softmax(-1).cumsum(-1)
    chosen = (cumulative <= uniform[:, None] * cumulative[:, -1:]).sum(-1)
    last = torch.where(values > LOG_ZERO / 2, torch.arange(values.shape[-1], device=values.device), 0).amax(
        -1
    )
    return torch.minimum(chosen, last)


@dataclass(frozen=True)
class _Options:
    """Everything a walker looks up: scores by fenceposts, and charts ``[batch, i, k, p, q]``."""

    scores: Tensor  # (batch, i, k, inner, rule)
    totals: Tensor
    as_left: tuple[Tensor, Tensor]

    @staticmethod
    def of(chart: Chart, scores: Tensor) -> "_Options":
        words, batch = words_of(scores), scores.shape[0]
        posts = chart.totals[0].shape[-1]
        shape = (batch, words + 1, words + 1, posts, posts)
        dense = [scores.new_full(shape, LOG_ZERO) for _ in range(3)]
        by_split = scores.new_full((batch, words + 1, words + 1, max(words - 1, 1), 2), LOG_ZERO)
        for width in range(1, words + 1):
            start = torch.arange(words - width + 1, device=scores.device)
            for table, cells in zip(dense, (chart.totals[width - 1], *chart.as_left[width - 1]), strict=True):
                table[:, start, start + width] = cells.detach()
            if width > 1:
                by_split[:, start, start + width, : width - 1] = width_block(scores, words, width).detach()
        return _Options(by_split, dense[0], (dense[1], dense[2]))

    def values(
        self, row: Tensor, start: Tensor, end: Tensor, p: Tensor, q: Tensor, forbidden: Tensor
    ) -> Tensor:
        """Log-weights ``(walkers, options)`` of all (inner, rule, middle of words)."""
        inner = torch.arange(self.scores.shape[3], device=row.device)
        middle = (start[:, None] + 1 + inner).clamp(max=self.totals.shape[1] - 1)  # (walkers, inner)
        row, start, end, p, q = (index[:, None] for index in (row, start, end, p, q))
        score = self.scores[row, start, end, inner]  # (walkers, inner, rule)
        right_first, right_second = (
            self.totals[row, middle, end, p],
            self.totals.transpose(3, 4)[row, middle, end, q],
        )
        straight = score[..., :1] + self.as_left[0][row, start, middle, p] + right_second
        inverted = score[..., 1:] + right_first + self.as_left[1].transpose(3, 4)[row, start, middle, q]
        values = torch.stack([straight, inverted], 2)  # (walkers, inner, rule, r)
        barred = torch.arange(2, device=row.device) == forbidden[:, None]
        return values.masked_fill(barred[:, None, :, None], LOG_ZERO).flatten(1)

    def unravel(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inner split, rule and middle of words of an option."""
        posts = self.totals.shape[-1]
        return chosen // (2 * posts), chosen // posts % 2, chosen % posts
