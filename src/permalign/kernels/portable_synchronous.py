"""Charts over source spans and output spans in plain torch, vectorised by width: any device, any differentiation.

The cells of a source span (i,k) are a matrix over output fenceposts (p,q), -1e30 where nothing can be, and a rule is
a product of two such matrices in logs. It is computed from exponentials, scaled by the largest entry of each row of
the first and each column of the second; products that come close to underflow are summed again in logs. Double
precision throughout. In normal form the left child of rule R is weighed by the other rule alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from permalign.kernels.layout import leaf_spans
from permalign.kernels.portable import attached_zeros, mask_padding, width_block, words_of

LOG_ZERO = -1e30


@dataclass(frozen=True)
class Chart:
    """Log-weights of all cells: lists by width (from 1), each ``(batch, start, p, q)``.

    ``leaves`` are those of spans as leaves, for the widths that leaves have. ``as_left`` has two for each width:
    the weight of a span as the left child of a straight and of an inverted rule, which differ in normal form.
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
) -> tuple[Tensor, Chart]:
    """The log of the summed weight of all derivations of the outputs, ``(batch,)``, and the chart; O(n^3 m^3).

        C(i,i+1,p,q) = segments[i, p, q - p]
        C(i,k,p,q) = logsumexp over j and r of { score_S + C(i,j,p,r) + C(j,k,r,q),
                                                 score_I + C(j,k,p,r) + C(i,j,r,q) }

    where phrases are leaves, C(i,k,p,q) has their ``segments[span, p, q - p]`` beside the sum over their parts. The
    result is ``C(0,n,0,m)``, -1e30 or less where an output is impossible. ``segments`` are ``(batch, leaf, start,
    size)``, leaves packed as spans are, finite where a pair has them.
    """
    words = words_of(scores)
    masked = mask_padding(scores, lengths).double()
    leaves = leaves_of(segments.double(), words, lengths, target_lengths)
    chart = Chart(leaves, leaves[:1], [(leaves[0], leaves[0])])
    roots = [leaves[0][:, 0]]
    for width in range(2, words + 1):
        straight, inverted = _products(chart, masked, width, maximise)
        possible = band(segments, lengths, target_lengths, width)[:, None]
        straight, inverted = (torch.where(possible, rule, LOG_ZERO) for rule in (straight, inverted))
        if width <= len(leaves):
            leaf = torch.where(possible, leaves[width - 1], LOG_ZERO)
            total = _together([straight, inverted, leaf], maximise)
            straight, inverted = (_together([rule, leaf], maximise) for rule in (straight, inverted))
        else:
            total = _together([straight, inverted], maximise)
        chart.totals.append(total)
        chart.as_left.append((inverted, straight) if normal_form else (total, total))
        roots.append(total[:, 0])
    row = torch.arange(scores.shape[0], device=scores.device)
    root = torch.stack(roots, 1)[row, lengths - 1, 0, target_lengths]
    return root.to(scores.dtype) + attached_zeros(mask_padding(scores, lengths)), chart


def _together(ways: list[Tensor], maximise: bool) -> Tensor:
    """The weight of either way."""
    both = torch.stack(ways)
    return both.amax(0) if maximise else both.logsumexp(0)


def leaves_of(segments: Tensor, words: int, lengths: Tensor, target_lengths: Tensor) -> list[Tensor]:
    """Segments by start and end, for each width of leaves ``(batch, first token, p, q)``."""
    _, leaves, starts, sizes = segments.shape
    first, width = (place.to(segments.device) for place in leaf_spans(words, leaves))
    post = torch.arange(starts, device=segments.device)
    size = post - post[:, None]  # (p, q)
    inside_source = first + width <= lengths[:, None]
    possible = (size >= 0) & (size < sizes) & (post <= target_lengths[:, None, None])
    by_end = segments[:, :, post[:, None], size.clamp(0, sizes - 1)]
    answer = torch.where(inside_source[:, :, None, None] & possible[:, None], by_end, LOG_ZERO)
    return list(answer.split(width.bincount()[1:].tolist(), dim=1))


def band(segments: Tensor, lengths: Tensor, target_lengths: Tensor, width: int) -> Tensor:
    """Which cells of spans of a width can be part of the whole, ``(batch, p, q)``."""
    post, longest = torch.arange(segments.shape[2], device=segments.device), segments.shape[3] - 1
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
