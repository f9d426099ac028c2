"""Labelled trees in plain torch: inside sums, the tagging likelihood, marginals, expected permutations, walks.

A node over (i,k) with label a has a split point j, an orientation o (0 straight, 1 inverted), a left child with label b
and a right child with label c. It adds ``rule(o,a,b,c) + split(i,j,k,o)`` to the log-weights of its children. What a
span needs to know of its children is one matrix over their labels for each orientation,

    pair(o,b,c) = sum_j exp( split(i,j,k,o) + beta(i,j,b) + beta(j,k,c) )

a matrix product over split points, which is contracted with the rules once: O(n^3 K^2 + n^2 K^3).

Products are computed in probability space, each cell scaled by its largest label and each span by its heaviest split
point; the logarithms of these scales are kept separately. What such a product loses to underflow matters only where
rules differ by more than half the range of the number format (see `permalign.kernels.numerics.needs_logs`). For these,
``logs=True`` computes the same in logarithms throughout, which takes K^2 numbers for every split point.
`permalign.kernels.portable` explains how charts are kept.

From the root down, the chart gives every node a distribution over its split point, orientation and children's labels
(`options`). Probability mass that flows down through these distributions gives marginals and expected permutations;
drawing from them gives samples; adding Gumbel noise to them gives relaxed samples.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from permalign.kernels.layout import (
    at_length,
    attached_zeros,
    by_ends,
    inside_square,
    is_root,
    length_of_spans,
    mask_padding,
    masked_tokens,
    root_scores,
    width_block,
)
from permalign.kernels.sampling import choose, gumbel_noise
from permalign.precision import outside_autocast


def _attached_zeros(splits: Tensor, rules: Tensor) -> Tensor:
    """Zeros ``(batch,)`` attached to splits and rules, so that a sentence of one token has gradients (of zero)."""
    return attached_zeros(splits) + rules[:0].sum()


def pairs_of_labels(left: Tensor, right: Tensor, splits: Tensor) -> Tensor:
    """Log-weights of pairs of children's labels, summed over split points, with logarithms throughout.

    Args:
        left: ``(..., 2, j, K)``, the left children's log-weights for each orientation and split point.
        right: ``(..., 2, j, K)``, the right children's.
        splits: ``(..., 2, j)``.

    Returns:
        ``(..., 2, K, K)``, indexed by orientation, left label and right label.
    """
    return (splits[..., None, None] + left[..., :, None] + right[..., None, :]).logsumexp(-3)


def parent(
    left: Tensor, right: Tensor, splits: Tensor, rules: Tensor, logs: bool, maximise: bool = False
) -> Tensor:
    """Log-weights ``(..., K)`` of a span's labels from its children's; arguments as in `pairs_of_labels`."""
    if maximise:
        # one left label at a time: a table of all pairs of labels at all split points would be K times larger
        lefts = (splits[..., None] + left).unbind(-1)
        best = torch.stack([(one[..., None] + right).amax(-2) for one in lefts], -2)  # (..., 2, b, c)
        return (best[..., None, :, :, :] + rules.transpose(0, 1)).flatten(-3).amax(-1)
    if logs:
        pairs = pairs_of_labels(left, right, splits)[..., None, :, :, :]  # (..., 1, orientation, b, c)
        return (pairs + rules.transpose(0, 1)).flatten(-3).logsumexp(-1)
    # every child is divided by its heaviest label; the left one is multiplied by the weight of its split point, which
    # is relative to the heaviest split point
    left_top, right_top = left.detach().amax(-1), right.detach().amax(-1)  # (..., 2, j)
    weight = splits + left_top + right_top
    top = weight.detach().flatten(-2).amax(-1)  # (...)
    # both differences are at most zero, also where a child is impossible and its log-weights are about LOG_ZERO
    left = (left - left_top[..., None] + (weight - top[..., None, None])[..., None]).exp()
    right = (right - right_top[..., None]).exp()
    pairs = left.transpose(-1, -2) @ right  # (..., orientation, b, c)
    highest = rules.detach().amax()
    flat_rules = (rules - highest).exp().transpose(0, 1).flatten(1)  # (a, orientation b c)
    return (pairs.flatten(-3) @ flat_rules.T).log() + (top + highest)[..., None]


def inside(
    rules: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor, logs: bool, maximise: bool = False
) -> Tensor:
    """Log-weights ``(batch, spans, K)`` of all trees over every span by label; with ``maximise``, of the best one.

        beta(i,i+1,a) = token(i,a)
        beta(i,k,a) = logsumexp_{j,o,b,c} rule(o,a,b,c) + split(i,j,k,o) + beta(i,j,b) + beta(j,k,c)

    Spans are packed by width, then start; those that reach into padding hold no meaningful value.
    """
    batch, max_length, labels = tokens.shape
    splits = mask_padding(splits, lengths)
    cell = masked_tokens(tokens, lengths) + _attached_zeros(splits, rules)[:, None, None]
    # left[b, i, w] = beta(i, i + w);   right[b, k, w] = beta(k - w, k)
    left, right = (tokens.new_zeros(batch, max_length + 1, max_length + 1, labels) for _ in range(2))
    cells = []
    for width in range(1, max_length + 1):
        starts = max_length - width + 1
        if width > 1:
            of_left = left[:, :starts, 1:width, :][:, :, None].expand(-1, -1, 2, -1, -1)
            of_right = right[:, width:, 1:width].flip(2)[:, :, None].expand(-1, -1, 2, -1, -1)
            scores = width_block(splits, max_length, width).transpose(
                2, 3
            )  # (batch, start, orientation, split)
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
    batch, max_length, labels = tokens.shape
    splits = mask_padding(splits, lengths)
    emissions = torch.where(inside_square(lengths, max_length), emissions, emissions.new_zeros(()))
    token_scores = masked_tokens(tokens, lengths) + _attached_zeros(splits, rules)[:, None, None]
    cell = emissions[..., None] + token_scores[:, :, None]  # (batch, start, position, K)
    shape = (batch, max_length + 1, max_length + 1, max_length + 1, labels)
    left_start, left_end, right_start, right_end = (tokens.new_zeros(shape) for _ in range(4))
    roots = []
    for width in range(1, max_length + 1):
        starts = max_length - width + 1
        if width > 1:
            # (batch, start, split, position, K), straight and inverted
            of_left = (left_start[:, :starts, 1:width, :starts], left_end[:, :starts, 1:width, width:])
            of_right = (right_end[:, width:, 1:width, width:], right_start[:, width:, 1:width, :starts])
            # (batch, start, position, orientation, split, K)
            left = torch.stack(of_left, dim=2).movedim(4, 2)
            right = torch.stack(of_right, dim=2).flip(3).movedim(4, 2)
            scores = width_block(splits, max_length, width).transpose(2, 3)[:, :, None]
            cell = parent(left, right, scores, rules, logs)
        left_start[:, :starts, width, :starts] = cell
        left_end[:, :starts, width, width:] = cell
        right_start[:, width:, width, :starts] = cell
        right_end[:, width:, width, width:] = cell
        roots.append((root + cell[:, 0, 0]).logsumexp(-1))
    return at_length(torch.stack(roots, dim=1), lengths)


# --- Choices from the root down -------------------------------------------------------------------------------


def options(chart: Tensor, rules: Tensor, splits: Tensor, lengths: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The options of all spans of each width 2..n, as two choices, one after the other.

    Returns for every width the log-weights ``(batch, start, a, 2, b, c)`` of an orientation and the children's labels
    given the span's label a, and ``(batch, start, split, 2, b, c)`` of split points given those; both unnormalised. The
    second choice does not depend on the span's label, so that two choices cost K times less than a single one.
    """
    max_length, splits = length_of_spans(chart), mask_padding(splits, lengths)
    choices = []
    left, right = by_ends(chart, max_length)
    for width in range(2, max_length + 1):
        starts = max_length - width + 1
        of_left = left[:, :starts, 1:width, None, :, None]
        of_right = right[:, width:, 1:width].flip(2)[:, :, :, None, None]
        scores = width_block(splits, max_length, width)[..., None, None]
        points = scores + of_left + of_right  # (batch, start, split, orientation, b, c)
        pairs = points.logsumexp(2)[:, :, None] + rules.transpose(0, 1)
        choices.append((pairs, points))
    return choices


def normalised(choices: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """The probabilities of `options`."""
    return [(pairs.flatten(3).softmax(-1).view_as(pairs), points.softmax(2)) for pairs, points in choices]


@outside_autocast
def marginals(
    top: Tensor, choices: list[tuple[Tensor, Tensor]], lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Posterior probabilities of spans, splits and rules; O(n^3 K^2 + n^2 K^3).

    Args:
        top: ``(batch, K)``, the probabilities of the root's label.
        choices: the `normalised` options.
        lengths: ``(batch,)``, the sentences' lengths.

    Returns:
        spans: ``(batch, spans, K)``, the probability that a span is a constituent with a label; zero at padding.
        splits: ``(batch, T, 2)``, the probability that a derivation has a split with an orientation.
        rules: ``(batch, 2, K, K, K)``, the expected number of nodes that use each rule.
    """
    max_length, batch, labels = len(choices) + 1, *top.shape
    from_left, from_right = (top.new_zeros(batch, max_length + 1, max_length + 1, labels) for _ in range(2))
    spans, splits, counts = [], [], top.new_zeros(batch, 2, labels, labels, labels)
    for width in range(max_length, 0, -1):
        starts = max_length - width + 1
        mass = from_left[:, :starts, width] + from_right[:, width:, width]
        mass = mass + is_root(lengths, width, starts, top.dtype)[..., None] * top[:, None]
        spans.append(mass)
        if width > 1:
            pairs, points = choices[width - 2]
            uses = mass[..., None, None, None] * pairs  # (batch, start, a, orientation, b, c)
            counts = counts + uses.sum(1).transpose(1, 2)
            used = uses.sum(2)[:, :, None] * points  # (batch, start, split, orientation, b, c)
            splits.append(used.sum((-2, -1)))
            from_left[:, :starts, 1:width] += used.sum((3, 5))
            from_right[:, width:, 1:width] += used.sum((3, 4)).flip(2)
    packed = [block.reshape(batch, -1, 2) for block in reversed(splits)]
    empty = top.new_zeros(batch, 0, 2)
    return torch.cat(spans[::-1], dim=1), torch.cat([empty, *packed], dim=1), counts


@outside_autocast
def expected_matrix(top: Tensor, choices: list[tuple[Tensor, Tensor]], lengths: Tensor) -> Tensor:
    """The expected permutation matrix ``(batch, position, token)``; O(n^4 K^2 + n^3 K^3). Padding is the identity.

    ``mu(i,k,p,a)``, the probability that (i,k) is a constituent with label a whose output starts at p, flows from the
    root down through `normalised` options, as in `permalign.kernels.portable.separable.expected_matrix`.
    """
    max_length, batch, labels = len(choices) + 1, *top.shape
    shape = (batch, max_length + 1, max_length + 1, max_length + 1, labels)
    left_start, left_end, right_start, right_end = (top.new_zeros(shape) for _ in range(4))
    for width in range(max_length, 0, -1):
        starts = max_length - width + 1
        mass = left_start[:, :starts, width, :starts] + left_end[:, :starts, width, width:]
        mass = mass + right_start[:, width:, width, :starts] + right_end[:, width:, width, width:]
        at_root = is_root(lengths, width, starts, top.dtype)  # the root starts at token 0 and at position 0
        mass = mass + (at_root[:, :, None] * at_root[:, None])[..., None] * top[:, None, None]
        if width == 1:
            matrix = mass.sum(-1).transpose(1, 2)  # from (batch, token, position)
            return torch.where(inside_square(lengths, max_length), matrix, torch.eye(max_length).to(matrix))
        pairs, points = choices[width - 2]
        # b: sentence, s: start, p: position, a: label, o: orientation, x and y: children's labels, j: split point
        used = torch.einsum("bspa,bsaoxy->bspoxy", mass, pairs)
        to_left = torch.einsum("bspoxy,bsjoxy->obsjpx", used, points)
        to_right = torch.einsum("bspoxy,bsjoxy->obsjpy", used, points).flip(3)
        left_start[:, :starts, 1:width, :starts] += to_left[0]
        right_end[:, width:, 1:width, width:] += to_right[0]
        left_end[:, :starts, 1:width, width:] += to_left[1]
        right_start[:, width:, 1:width, :starts] += to_right[1]
    raise AssertionError("a sentence has at least one token")


Option = tuple[Tensor, Tensor, Tensor, Tensor]
"""The options that walkers take: how many split points precede theirs, orientation, left label and right label."""

ChooseOption = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None], Option]
"""Chooses an option for every walker; see `choose_option`."""


def choose_option(
    rules: Tensor,
    label: Tensor,
    allowed: Tensor,
    of_left: Tensor,
    of_right: Tensor,
    of_split: Tensor,
    draw: Tensor | None,
) -> Option:
    """The options of spans that are drawn, or the heaviest ones; O(n K^2).

    Args:
        rules: ``(2, K, K, K)``.
        label: ``(walker,)``, the label of every span.
        allowed: ``(walker, split)``, false for split points beyond a span.
        of_left, of_right: ``(walker, split, K)``, the log-weights of children by label.
        of_split: ``(walker, split, 2)``.
        draw: ``(walker,)``, numbers in [0, 1); None for the heaviest options.
    """
    labels = of_left.shape[-1]
    weights = of_split[..., None, None] + of_left[:, :, None, :, None] + of_right[:, :, None, None]
    weights = (weights + rules.transpose(0, 1)[label][:, None]).masked_fill(
        ~allowed[..., None, None, None], -torch.inf
    )
    option = choose(weights.flatten(1), draw)
    # the index of an option counts (split point, orientation, left label, right label), the last one fastest
    option, right_label = option // labels, option % labels
    option, left_label = option // labels, option % labels
    return option // 2, option % 2, left_label, right_label


def walk(
    chart: Tensor,
    choose_option: ChooseOption,
    root: Tensor,
    splits: Tensor,
    lengths: Tensor,
    uniforms: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Build derivations from the root down: choose the root's label, then an option (j, o, b, c) for every node.

    With ``uniforms`` ``(samples, batch, n)`` in [0, 1) options are drawn (see `choose`), one number for each, the first
    for the root's label; without them the heaviest options are taken, and there is one sample.

    Returns:
        nodes: ``(samples, batch, n - 1, 5)``, the internal nodes (i, j, k, orientation, label) in pre-order, -1 beyond.
        leaves: ``(samples, batch, n)``, the labels of tokens, -1 at padding.
        orders: ``(samples, batch, n)``, the token at every position; padding stays where it is.
    """
    max_length, device = length_of_spans(chart), chart.device
    samples = 1 if uniforms is None else uniforms.shape[0]
    count, batch = samples * chart.shape[0], chart.shape[0]
    row, walker = torch.arange(batch, device=device).repeat(samples), torch.arange(count, device=device)
    draws = [None] * max_length if uniforms is None else uniforms.reshape(count, max_length).unbind(1)
    left, right = by_ends(chart.detach(), max_length)
    scores = mask_padding(splits.detach(), lengths)
    orders = torch.arange(max_length, device=device).repeat(count, 1)
    nodes = torch.full((count, max_length - 1, 5), -1, device=device)
    leaves = torch.full((count, max_length), -1, device=device)
    # a stack of open spans per walker: start, end, position, label
    stack = torch.zeros((count, max_length + 1, 4), dtype=torch.int64, device=device)
    stack[:, 0, 1] = lengths.repeat(samples)
    stack[:, 0, 3] = choose(root_scores(chart, root, lengths).detach()[row], draws[0])
    depth = (lengths.repeat(samples) > 1).long()
    single = depth == 0
    leaves[single, 0] = stack[single, 0, 3]
    inner = torch.arange(1, max_length, device=device)
    for step in range(max_length - 1):
        active = depth > 0
        start, end, position, label = stack[walker, (depth - 1).clamp(min=0)].unbind(-1)
        width = torch.where(active, end - start, 2)
        start, end = (
            torch.where(active, start, 0),
            torch.where(active, end, 2),
        )  # any valid span where nothing is open
        allowed = inner < width[:, None]
        of_left = left[row[:, None], start[:, None], inner]  # (walker, split, K)
        of_right = right[row[:, None], end[:, None], (width[:, None] - inner).clamp(min=0)]
        of_split = scores[row[:, None], _split_indices(max_length, start, width, inner)]
        point, rule, left_label, right_label = choose_option(
            label, allowed, of_left, of_right, of_split, draws[step + 1]
        )
        middle = start + point + 1
        node = torch.stack([start, middle, end, rule, label], dim=-1)
        nodes[:, step] = torch.where(active[:, None], node, -1)
        depth = depth - active.long()
        straight = rule == 0
        right_position = torch.where(straight, position + middle - start, position)
        left_position = torch.where(straight, position, position + end - middle)
        for child in (
            (middle, end, right_position, right_label),
            (start, middle, left_position, left_label),
        ):
            leaf = active & (child[1] - child[0] == 1)
            orders[walker[leaf], child[2][leaf]] = child[0][leaf]
            leaves[walker[leaf], child[0][leaf]] = child[3][leaf]
            open_span = active & (child[1] - child[0] > 1)
            stack[walker[open_span], depth[open_span]] = torch.stack(child, dim=-1)[open_span]
            depth = depth + open_span.long()
    return (
        nodes.view(samples, batch, max_length - 1, 5),
        leaves.view(samples, batch, max_length),
        orders.view(samples, batch, max_length),
    )


def _split_indices(max_length: int, start: Tensor, width: Tensor, inner: Tensor) -> Tensor:
    """The indices of spans' splits in the packed layout; arbitrary (but valid) ones beyond a span's width."""
    narrower = width - 2
    offset = max_length * narrower * (width - 1) // 2 - narrower * (width - 1) * (2 * width - 3) // 6
    return (offset + start * (width - 1))[:, None].add(inner - 1)


def gumbel_options(
    choices: list[tuple[Tensor, Tensor]], temperature: float, generator: torch.Generator | None
) -> list[tuple[Tensor, Tensor]]:
    """The `options` with Gumbel noise added, divided by a temperature."""
    return [
        tuple((weights + gumbel_noise(weights, generator)) / temperature for weights in both)  # type: ignore[misc]
        for both in choices
    ]


def one_hot(probabilities: Tensor, axis: int) -> Tensor:
    """One at the largest entry along an axis, zero elsewhere."""
    return torch.zeros_like(probabilities).scatter(axis, probabilities.argmax(axis, keepdim=True), 1.0)


def hardened(choices: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Straight-through estimates: one for the most probable of the `normalised` options, with their gradient."""
    hard = []
    for pairs, points in choices:
        hot = one_hot(pairs.flatten(3), 3).view_as(pairs) + (pairs - pairs.detach())
        hard.append((hot, one_hot(points, 2) + (points - points.detach())))
    return hard
