"""Which cells of `permalign.kernels.portable.synchronous` matter: upper bounds on their posteriors, in plain torch.

The bounds belong to a *relaxed* likelihood, which forgets the tree: the words of a span are written by its tokens in
any order, each of which may be used any number of times, or not at all. It takes O(n^2 m^2 L), and is a product of
scales: one for each token, and one for the output. With scales that make every token be used once on average, the
relaxed likelihood comes close to the likelihood if the model is certain of its alignments.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from permalign.kernels.layout import leaf_spans, length_of, span_count, width_block
from permalign.kernels.numerics import LARGEST_SHARE, LEAST_USE, LOG_ZERO, SCALING_STEPS
from permalign.kernels.portable import synchronous
from permalign.masks import length_mask


class Pruning(NamedTuple):
    """The cells that are kept of charts of outputs, and a bound on the mass of all others.

    Attributes:
        token_scales: ``(batch, n)``, logs; 0 at padding.
        output_scales: ``(batch, m + 1)``, logs of what the tokens before an output fencepost write, relatively to the
            scales of tokens; 0 at padding.
        rows: ``(batch, spans, m + 1, 2)``: for each span and p, the first kept q and one past the last. Spans are
            packed by width.
        pruned: ``(batch,)``, an upper bound on the summed weight of all derivations with a cell that is not kept,
            divided by the relaxed likelihood.
    """

    token_scales: Tensor
    output_scales: Tensor
    rows: Tensor
    pruned: Tensor

    def relaxed(self, target_lengths: Tensor) -> Tensor:
        """The log of the relaxed likelihood ``(batch,)``, an upper bound on that of the likelihood."""
        outputs = self.output_scales.gather(1, target_lengths[:, None]).squeeze(1)
        return self.token_scales.sum(1) + outputs


class _Relaxation(NamedTuple):
    """What tokens write, divided by the scales of tokens and fenceposts.

    Attributes:
        odds: ``(batch, n, start, size)``, of segments of at least one word.
        empty: ``(batch, n)``, the largest weight of writing nothing.
        nothing: ``(batch, n, start)``, the weight of writing nothing at a fencepost.
        token_scales: see `Pruning`.
        output_scales: see `Pruning`; -inf where no tokens write so many words.
        possible: ``(batch,)``, whether the relaxed likelihood is not 0.
    """

    odds: Tensor
    empty: Tensor
    nothing: Tensor
    token_scales: Tensor
    output_scales: Tensor
    possible: Tensor


def bound_cells(
    marginals: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, threshold: float
) -> Pruning:
    """Keep the cells whose relaxed posterior is not below a threshold, and bound the mass of all the others.

    The weight of all derivations with the cell (i,k,p,q) is at most

        mu(i,k) * outside(0,p) * inside(p,q) * outside(q,m)

    with mu(i,k) the probability of the span before any output is seen, and three relaxed sums: those over the tokens of
    the span, and over all others. All are relative to the relaxed likelihood. A lost derivation has a cell that is not
    kept, so the lost mass is at most the sum of the bounds of these cells. The cells of one span contribute mu(i,k) at
    most, because a derivation has only one of them. For each p, the cells between two that are kept are kept as well.

    Args:
        marginals: ``(batch, T, 2)``, how probable each split and rule is in a tree.
        segments: ``(batch, n, m + 1, L + 1)``, log-weights, finite except at padding.
        lengths: ``(batch,)``, the lengths of the sources.
        target_lengths: ``(batch,)``, the lengths of the outputs.
        threshold: posteriors from here on are kept.
    """
    batch, length, fenceposts, _ = segments.shape
    relaxation = _relax(segments.double(), lengths, target_lengths)
    start, width = _spans(length, segments)
    end = start + width
    prior = _constituents(marginals, lengths)  # (batch, spans)
    inside, nothing = _of_spans(
        relaxation.odds, relaxation.nothing
    )  # (batch, spans, start, size), (..., start)
    others = _before(relaxation.odds)[:, start] + _after(relaxation.odds)[:, end]
    prefixes, suffixes = _prefixes(others), _suffixes(others, target_lengths[:, None])
    sums = _between(inside)  # (batch, spans, p, q)
    sums[:, :length] = _by_end(relaxation.odds)
    diagonal = torch.arange(fenceposts, device=segments.device)
    sums[:, :, diagonal, diagonal] = nothing
    mass = prior[..., None] * prefixes  # (batch, spans, p)
    bounds = mass[..., None] * sums * suffixes[..., None, :]
    # where all words are written inside, the tokens outside write nothing
    row = torch.arange(batch, device=segments.device)
    rest = _products_before(relaxation.empty)[:, start] * _products_after(relaxation.empty)[:, end]
    bounds[row, :, 0, target_lengths] = prior * sums[row, :, 0, target_lengths] * rest
    possible = _bands(segments, lengths, target_lengths)
    probable = (prior >= threshold)[..., None] & (mass >= threshold)
    kept = _hull((bounds >= threshold) & probable[..., None] & possible)
    # the bounds of rows that are not looked at are those with the factor inside(p,q) <= 1
    crude = torch.where(probable[..., None], bounds, mass[..., None] * suffixes[..., None, :])
    lost = torch.where(possible & ~kept, crude, 0.0).sum((2, 3))
    pruned = torch.where(prior < threshold, prior, torch.minimum(prior, lost)).sum(1)
    too_many = kept.sum((1, 2, 3)) > LARGEST_SHARE * possible.sum((1, 2, 3))
    kept = (
        torch.where(too_many[:, None, None, None], possible, kept) & relaxation.possible[:, None, None, None]
    )
    pruned = torch.where(too_many | ~relaxation.possible, 0.0, pruned)
    in_target = length_mask(target_lengths + 1, fenceposts)
    output_scales = torch.where(in_target, relaxation.output_scales, 0.0)
    none = torch.where(diagonal == target_lengths[:, None], LOG_ZERO, 0.0).to(output_scales)
    output_scales = torch.where(relaxation.possible[:, None], output_scales, none)
    token_scales = torch.where(relaxation.possible[:, None], relaxation.token_scales, 0.0)
    return Pruning(token_scales, output_scales, _rows(kept), pruned)


def kept_cells(rows: Tensor) -> Tensor:
    """Which cells are kept, ``(batch, spans, p, q)``."""
    fencepost = torch.arange(rows.shape[2], device=rows.device)
    return (rows[..., :1] <= fencepost) & (fencepost < rows[..., 1:])


def inside(
    rules: Tensor, segments: Tensor, pruning: Pruning, lengths: Tensor, target_lengths: Tensor
) -> Tensor:
    """The log of the summed weight of all derivations that have only kept cells, ``(batch,)``.

    Args:
        rules: ``(batch, T, 2)``, weights of splits and rules (not logs): the probabilities of the options of each span.
        segments: ``(batch, n, m + 1, L + 1)``, log-weights.
        pruning: which cells are kept.
        lengths: ``(batch,)``, the lengths of the sources.
        target_lengths: ``(batch,)``, the lengths of the outputs.
    """
    scores = rules.clamp(min=torch.finfo(rules.dtype).tiny).log()
    kept = kept_cells(pruning.rows)
    return synchronous.inside(scores, segments, lengths, target_lengths, kept=kept)[0]


# --- The relaxed likelihood -----------------------------------------------------------------------------------


def _relax(segments: Tensor, lengths: Tensor, target_lengths: Tensor) -> _Relaxation:
    """Divide what tokens write by scales that make every token be used once on average.

    A token's scale grows with its use, but does not fall below the weight of writing nothing, so that the factor of
    tokens that are not used is at most 1. Fenceposts are scaled in turn. Sinkhorn's algorithm does the same to the rows
    and columns of a matrix.
    """
    _, length, fenceposts, sizes = segments.shape
    present = length_mask(lengths, length)
    start = torch.arange(fenceposts, device=segments.device)[:, None]
    size = torch.arange(sizes, device=segments.device)
    end = start + size  # (start, size)
    in_pair = present[:, :, None, None] & (end <= target_lengths[:, None, None])[:, None]
    weights = torch.where(in_pair & (segments > LOG_ZERO / 2), segments, -torch.inf)
    token_scales = weights.amax((2, 3))
    possible = (token_scales.isfinite() | ~present).all(1)
    token_scales = torch.where(token_scales.isfinite(), token_scales, 0.0)
    weights = weights - token_scales[:, :, None, None]
    empty = torch.where(present, weights[..., 0].amax(2).exp(), 1.0)
    output_scales = _best_prefixes(weights.amax(1))
    end = end.clamp(max=fenceposts - 1)
    ratios = _ratios(output_scales, end) + torch.where(size > 0, weights, -torch.inf)
    odds = torch.where(ratios.isnan(), 0.0, ratios.exp())
    for step in range(SCALING_STEPS + 1):
        prefixes = _log_prefixes(odds.sum(1))
        output_scales = output_scales + prefixes
        ratios = _ratios(prefixes, end)
        odds = odds * torch.where(ratios.isnan(), 0.0, ratios.exp())
        if step < SCALING_STEPS:
            through = _suffixes(odds.sum(1), target_lengths)[:, end]  # (batch, start, size)
            use = (odds * through[:, None]).sum((2, 3))
            scale = torch.maximum(use, empty).clamp(min=LEAST_USE)
            odds, empty = odds / scale[:, :, None, None], empty / scale
            token_scales = token_scales + scale.log()
    possible = possible & (output_scales.gather(1, target_lengths[:, None]).squeeze(1) > -torch.inf)
    nothing = torch.where(present[..., None], segments[..., 0] - token_scales[..., None], 0.0).exp()
    return _Relaxation(odds, empty, nothing, token_scales, output_scales, possible)


def _ratios(scales: Tensor, end: Tensor) -> Tensor:
    """``scales[start] - scales[end]``, ``(batch, 1, start, size)``; NaN or infinite at fenceposts never reached."""
    ratios = scales[:, :, None] - scales[:, end]
    return torch.where(scales[:, end].isfinite(), ratios, torch.nan)[:, None]


def _best_prefixes(weights: Tensor) -> Tensor:
    """The largest weight of the words before each fencepost, ``(batch, fenceposts)``, by weights ``(start, size)``."""
    answer = [torch.zeros_like(weights[:, 0, 0])]
    for q in range(1, weights.shape[1]):
        options = [answer[q - size] + weights[:, q - size, size] for size in _sizes(weights, q)]
        answer.append(torch.stack([torch.full_like(answer[0], -torch.inf), *options]).amax(0))
    return torch.stack(answer, 1)


def _log_prefixes(odds: Tensor) -> Tensor:
    """Logs of the relaxed sums of the words before each fencepost, ``(batch, fenceposts)``."""
    answer = [torch.zeros_like(odds[:, 0, 0])]
    for q in range(1, odds.shape[1]):
        options = [answer[q - size] + odds[:, q - size, size].log() for size in _sizes(odds, q)]
        answer.append(torch.stack([torch.full_like(answer[0], -torch.inf), *options]).logsumexp(0))
    return torch.stack(answer, 1)


def _prefixes(odds: Tensor) -> Tensor:
    """The relaxed sums of the words before each fencepost, ``(..., fenceposts)``, by odds ``(..., start, size)``."""
    answer = [torch.ones_like(odds[..., 0, 0])]
    for q in range(1, odds.shape[-2]):
        total = torch.zeros_like(answer[0])
        for size in _sizes(odds, q):
            total = total + answer[q - size] * odds[..., q - size, size]
        answer.append(total)
    return torch.stack(answer, -1)


def _suffixes(odds: Tensor, target_lengths: Tensor) -> Tensor:
    """The relaxed sums of the words from each fencepost on, ``(..., fenceposts)``; 0 beyond the output's end."""
    fenceposts = odds.shape[-2]
    answer: dict[int, Tensor] = {}
    for p in reversed(range(fenceposts)):
        total = (target_lengths == p).to(odds).expand(odds.shape[:-2])
        for size in _sizes(odds, fenceposts - 1 - p):
            total = total + odds[..., p, size] * answer[p + size]
        answer[p] = total
    return torch.stack([answer[p] for p in range(fenceposts)], -1)


def _between(odds: Tensor) -> Tensor:
    """The relaxed sums of the words between two fenceposts, ``(..., p, q)``; 1 where p = q, and 0 where p > q."""
    fenceposts = odds.shape[-2]
    identity = torch.eye(fenceposts, dtype=odds.dtype, device=odds.device)
    answer: list[Tensor] = []
    for q in range(fenceposts):
        total = identity[q].expand(*odds.shape[:-2], -1)
        for size in _sizes(odds, q):
            total = total + answer[q - size] * odds[..., q - size, size, None]
        answer.append(total)
    return torch.stack(answer, -1)


def _sizes(odds: Tensor, room: int) -> range:
    """The sizes of segments that are not empty and have room."""
    return range(1, min(odds.shape[-1] - 1, room) + 1)


# --- Spans ----------------------------------------------------------------------------------------------------


def _constituents(marginals: Tensor, lengths: Tensor) -> Tensor:
    """How probable each span is in a tree before any output is seen, ``(batch, spans)``; 0 at padding."""
    max_length = length_of(marginals)
    by_width = [torch.ones_like(lengths).to(marginals)[:, None].expand(-1, max_length)]
    by_width += [width_block(marginals, max_length, width).sum((2, 3)) for width in range(2, max_length + 1)]
    start, width = _spans(max_length, marginals)
    is_root = (start == 0) & (width == lengths[:, None])
    prior = torch.where(is_root, 1.0, torch.cat(by_width, 1))
    return torch.where(start + width <= lengths[:, None], prior, 0.0)


def _spans(max_length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The first token and the width of every span."""
    start, width = leaf_spans(max_length, span_count(max_length))
    return start.to(like.device), width.to(like.device)


def _of_spans(odds: Tensor, nothing: Tensor) -> tuple[Tensor, Tensor]:
    """The summed odds of the tokens of every span, and the product of their weights of writing nothing."""
    sums, products = [odds], [nothing]
    for width in range(2, odds.shape[1] + 1):
        sums.append(sums[-1][:, :-1] + odds[:, width - 1 :])
        products.append(products[-1][:, :-1] * nothing[:, width - 1 :])
    return torch.cat(sums, 1), torch.cat(products, 1)


def _before(odds: Tensor) -> Tensor:
    """The summed odds of the tokens before each source fencepost, ``(batch, n + 1, start, size)``."""
    return torch.cat([torch.zeros_like(odds[:, :1]), odds.cumsum(1)], 1)


def _after(odds: Tensor) -> Tensor:
    """The summed odds of the tokens from each source fencepost on, ``(batch, n + 1, start, size)``."""
    return _before(odds.flip(1)).flip(1)


def _products_before(empty: Tensor) -> Tensor:
    """The product over the tokens before each source fencepost, ``(batch, n + 1)``."""
    return torch.cat([torch.ones_like(empty[:, :1]), empty.cumprod(1)], 1)


def _products_after(empty: Tensor) -> Tensor:
    """The product over the tokens from each source fencepost on, ``(batch, n + 1)``."""
    return _products_before(empty.flip(1)).flip(1)


def _by_end(odds: Tensor) -> Tensor:
    """Odds of segments by their first fencepost and their last one, ``(batch, n, p, q)``; 0 for empty segments."""
    fenceposts, sizes = odds.shape[2:]
    fencepost = torch.arange(fenceposts, device=odds.device)
    size = fencepost - fencepost[:, None]
    by_end = odds[:, :, fencepost[:, None], size.clamp(0, sizes - 1)]
    return torch.where((size > 0) & (size < sizes), by_end, 0.0)


def _bands(segments: Tensor, lengths: Tensor, target_lengths: Tensor) -> Tensor:
    """Which cells can be part of a whole derivation, ``(batch, spans, p, q)``; see `synchronous.band`."""
    max_length = segments.shape[1]
    by_width = [
        synchronous.band(segments, lengths, target_lengths, width)[:, None].expand(
            -1, max_length - width + 1, -1, -1
        )
        for width in range(1, max_length + 1)
    ]
    start, width = _spans(max_length, segments)
    inside_source = start + width <= lengths[:, None]
    return torch.cat(by_width, 1) & inside_source[..., None, None]


def _hull(kept: Tensor) -> Tensor:
    """The kept cells of each row, and those between them."""
    return (kept.cummax(-1).values) & (kept.flip(-1).cummax(-1).values.flip(-1))


def _rows(kept: Tensor) -> Tensor:
    """The first kept q and one past the last, ``(batch, spans, p, 2)``; two zeros where none is kept."""
    first = kept.int().argmax(-1)
    end = torch.where(kept.any(-1), first + kept.sum(-1), 0)
    return torch.stack([first, end], -1).int()
