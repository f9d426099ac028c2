"""The recurrences of labelled trees in plain torch, vectorised by width: any device, any order of differentiation.

A node of width w and label a is a split point j, an orientation o (0 straight, 1 inverted), a left child of label b
and a right one of label c; it weighs ``rule(o,a,b,c) + split(i,j,k,o)`` beside its children. What a span needs of its
children is one matrix of labels for each orientation,

    pair(o,b,c) = sum_j exp( split(i,j,k,o) + beta(i,j,b) + beta(j,k,c) )

a product of matrices over the split points, which is contracted once with the rules: O(n^3 K^2 + n^2 K^3).

Products are made in probability space, each cell scaled by its largest label and each span by its heaviest split
point, whose logarithms are kept aside. What such a product loses to underflow matters only where rules differ by more
than half the range of the number format (see `needs_logs`); there ``logs=True`` computes the same with logarithms
throughout, at the price of K^2 numbers for every split point. Charts are kept as in `permalign.kernels.portable`.
"""

import torch
from torch import Tensor

from permalign.kernels.layout import span_offset
from permalign.kernels.portable import at_length, inside_square, mask_padding, width_block
from permalign.kernels.portable import attached_zeros as portable_zeros

RULE_RANGE = {torch.float32: 30.0, torch.float64: 300.0}
"""By how much log weights of rules (and of root labels) may differ before products of probabilities lose mass."""


def needs_logs(rules: Tensor, root: Tensor, precision: torch.dtype | None = None) -> bool:
    """Whether rules differ so much that products of probabilities could underflow where it matters.

    A weight is dropped if it is below the smallest number, ``tiny``, beside its cell's largest. With R the range of
    the rules' (and the root's) log weights, whatever surrounds a label surrounds every other at most ``exp(R)`` times
    cheaper, and one split point makes one label at most ``exp(R)`` times cheaper than another; so what is dropped is
    less than ``tiny * exp(2 R)`` of the whole, and R may be half the exponent's range less some room for precision.
    """
    limit = RULE_RANGE[precision or rules.dtype]
    return any(bool(part.amax() - part.amin() > limit) for part in (rules.detach(), root.detach()))


def root_scores(chart: Tensor, root: Tensor, lengths: Tensor) -> Tensor:
    """Log weights ``(batch, K)`` of every label at the top of each sentence."""
    words = words_of_spans(chart)
    offsets = torch.tensor([span_offset(words, width) for width in range(1, words + 1)])
    tops = offsets.to(lengths.device)[lengths - 1]
    return root + chart[torch.arange(chart.shape[0], device=lengths.device), tops]


def words_of_spans(chart: Tensor) -> int:
    """The sentence length of a packed chart ``(batch, n (n + 1) / 2, ...)``."""
    return int((2 * chart.shape[1]) ** 0.5)


def masked_tokens(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Token scores ``(batch, n, K)``, zero at padding, whatever stood there."""
    present = torch.arange(tokens.shape[1], device=lengths.device) < lengths[:, None]
    return torch.where(present[..., None], tokens, tokens.new_zeros(()))


def attached_zeros(splits: Tensor, rules: Tensor) -> Tensor:
    """Zeros ``(batch,)`` that depend on splits and rules in name, so that one word has gradients (of zero) too."""
    return portable_zeros(splits) + rules[:0].sum()


def pairs_of_labels(left: Tensor, right: Tensor, splits: Tensor) -> Tensor:
    """Log weights of pairs of children's labels, summed over split points, with logarithms throughout.

    Args:
        left: ``(..., 2, j, K)``, the left children's log weights for each orientation and split point.
        right: ``(..., 2, j, K)``, the right children's.
        splits: ``(..., 2, j)``.

    Returns:
        ``(..., 2, K, K)``, indexed by orientation, left label and right label.
    """
    return (splits[..., None, None] + left[..., :, None] + right[..., None, :]).logsumexp(-3)


def parent(
    left: Tensor, right: Tensor, splits: Tensor, rules: Tensor, logs: bool, maximise: bool = False
) -> Tensor:
    """Log weights ``(..., K)`` of a span's labels from its children's; arguments as in `pairs_of_labels`."""
    if maximise:
        best = (splits[..., None, None] + left[..., :, None] + right[..., None, :]).amax(-3)
        return (best[..., None, :, :, :] + rules.transpose(0, 1)).flatten(-3).amax(-1)
    if logs:
        pairs = pairs_of_labels(left, right, splits)[..., None, :, :, :]  # (..., 1, orientation, b, c)
        return (pairs + rules.transpose(0, 1)).flatten(-3).logsumexp(-1)
    left_most, right_most = left.detach().amax(-1), right.detach().amax(-1)  # (..., 2, j)
    weight = splits + left_most + right_most
    most = weight.detach().flatten(-2).amax(-1)  # (...)
    left = (left + (weight - left_most - most[..., None, None])[..., None]).exp()
    right = (right - right_most[..., None]).exp()
    pairs = left.transpose(-1, -2) @ right  # (..., orientation, b, c)
    highest = rules.detach().amax()
    flat_rules = (rules - highest).exp().transpose(0, 1).flatten(1)  # (a, orientation b c)
    return (pairs.flatten(-3) @ flat_rules.T).log() + (most + highest)[..., None]


def inside(
    rules: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor, logs: bool, maximise: bool = False
) -> Tensor:
    """Log weights ``(batch, spans, K)`` of all trees over every span by label; or of the best one.

        beta(i,i+1,a) = token(i,a)
        beta(i,k,a) = logsumexp_{j,o,b,c} rule(o,a,b,c) + split(i,j,k,o) + beta(i,j,b) + beta(j,k,c)

    Spans are packed by width, then start; those that reach beyond their sentence mean nothing.
    """
    batch, words, labels = tokens.shape
    splits = mask_padding(splits, lengths)
    cell = masked_tokens(tokens, lengths) + attached_zeros(splits, rules)[:, None, None]
    # left[b, i, w] = beta(i, i + w);   right[b, k, w] = beta(k - w, k)
    left, right = (tokens.new_zeros(batch, words + 1, words + 1, labels) for _ in range(2))
    cells = []
    for width in range(1, words + 1):
        starts = words - width + 1
        if width > 1:
            of_left = left[:, :starts, 1:width, :][:, :, None].expand(-1, -1, 2, -1, -1)
            of_right = right[:, width:, 1:width].flip(2)[:, :, None].expand(-1, -1, 2, -1, -1)
            scores = width_block(splits, words, width).transpose(2, 3)  # (batch, start, orientation, split)
            cell = parent(of_left, of_right, scores, rules, logs, maximise)
        left[:, :starts, width] = cell
        right[:, width:, width] = cell
        cells.append(cell)
    return torch.cat(cells, dim=1)


def tagging_inside(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    emissions: Tensor,
    lengths: Tensor,
    logs: bool,
) -> Tensor:
    """The log of the summed weight of all labelled trees times their emissions, ``(batch,)``; O(n^4 K^2 + n^3 K^3).

        C(i,i+1,p,a) = emission(i,p) + token(i,a)
        C(i,k,p,a) = logsumexp_{j,b,c} { rule(0,a,b,c) + split(i,j,k,0) + C(i,j,p,b) + C(j,k,p+j-i,c),
                                         rule(1,a,b,c) + split(i,j,k,1) + C(i,j,p+k-j,b) + C(j,k,p,c) }

    and the result is ``logsumexp_a root(a) + C(0,n,0,a)``. ``emissions`` are ``(batch, token, position)``, finite.
    """
    batch, words, labels = tokens.shape
    splits = mask_padding(splits, lengths)
    emissions = torch.where(inside_square(lengths, words), emissions, emissions.new_zeros(()))
    own = masked_tokens(tokens, lengths) + attached_zeros(splits, rules)[:, None, None]
    cell = emissions[..., None] + own[:, :, None]  # (batch, start, position, K)
    shape = (batch, words + 1, words + 1, words + 1, labels)
    left_start, left_end, right_start, right_end = (tokens.new_zeros(shape) for _ in range(4))
    roots = []
    for width in range(1, words + 1):
        starts = words - width + 1
        if width > 1:
            # (batch, start, split, position, K), straight and inverted
            of_left = (left_start[:, :starts, 1:width, :starts], left_end[:, :starts, 1:width, width:])
            of_right = (right_end[:, width:, 1:width, width:], right_start[:, width:, 1:width, :starts])
            left = torch.stack(of_left, dim=2).movedim(
                4, 2
            )  # (batch, start, position, orientation, split, K)
            right = torch.stack(of_right, dim=2).flip(3).movedim(4, 2)
            scores = width_block(splits, words, width).transpose(2, 3)[:, :, None]
            cell = parent(left, right, scores, rules, logs)
        left_start[:, :starts, width, :starts] = cell
        left_end[:, :starts, width, width:] = cell
        right_start[:, width:, width, :starts] = cell
        right_end[:, width:, width, width:] = cell
        roots.append((root + cell[:, 0, 0]).logsumexp(-1))
    return at_length(torch.stack(roots, dim=1), lengths)
