"""Separable permutations in plain torch; `permalign.kernels.portable` explains how charts are kept.

The same functions serve the normal form, in which every permutation has one derivation: no straight node has a straight
left child, and no inverted node an inverted one. There, a left child of rule R counts only derivations whose topmost
rule is the *other* one.
"""

import torch
from torch import Tensor

from permalign.kernels.layout import (
    at_length,
    attached_zeros,
    inside_square,
    is_root,
    length_of,
    mask_padding,
    pack_blocks,
    split_offset,
    width_block,
)
from permalign.kernels.sampling import choose


def inside(
    scores: Tensor, lengths: Tensor, normal_form: bool = False, maximise: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-partition ``(batch,)`` and weights ``gamma`` ``(batch, T, 2)`` of the options of every span; O(n^3).

    ``gamma(i,j,k,R) = score(i,j,k,R) + beta(i,j) + beta(j,k)``; ``beta(i,k) = logsumexp_{j,R} gamma``, or the
    maximum with ``maximise``. Zero at padding.
    """
    max_length, batch = length_of(scores), scores.shape[0]
    scores = mask_padding(scores, lengths)
    # left[b, i, w, R] = beta(i, i + w) as a left child of rule R;   right[b, k, w] = beta(k - w, k)
    left = scores.new_zeros(batch, max_length + 1, max_length + 1, 2)
    right = scores.new_zeros(batch, max_length + 1, max_length + 1)
    blocks, roots = [], [attached_zeros(scores)]
    for width in range(2, max_length + 1):
        starts = max_length - width + 1
        block = (
            width_block(scores, max_length, width)
            + left[:, :starts, 1:width]
            + right[:, width:, 1:width].flip(2)[..., None]
        )
        by_rule = block.amax(2) if maximise else block.logsumexp(2)  # (batch, start, 2)
        total = by_rule.amax(-1) if maximise else by_rule.logsumexp(-1)
        left[:, :starts, width] = by_rule.flip(-1) if normal_form else total[..., None]
        right[:, width:, width] = total
        blocks.append(block)
        roots.append(total[:, 0])
    gamma = mask_padding(pack_blocks(blocks, scores), lengths)
    return at_length(torch.stack(roots, dim=1), lengths), gamma


def span_softmax(logits: Tensor, lengths: Tensor, within_rule: bool = False) -> Tensor:
    """Normalise over the options (j, R) of every span, or over j for each rule separately; zero at padding."""
    max_length = length_of(logits)
    blocks = []
    for width in range(2, max_length + 1):
        block = width_block(logits, max_length, width)
        blocks.append(block.softmax(2) if within_rule else block.flatten(2).softmax(-1))
    return mask_padding(pack_blocks(blocks, logits), lengths)


def span_one_hot(weights: Tensor, lengths: Tensor, within_rule: bool = False) -> Tensor:
    """One at the heaviest option of every span (or of each rule separately), zero elsewhere and at padding."""
    max_length = length_of(weights)
    blocks = []
    for width in range(2, max_length + 1):
        block = width_block(weights, max_length, width)  # (batch, start, split, rule)
        options = block.transpose(2, 3) if within_rule else block.flatten(2)
        hot = torch.zeros_like(options).scatter(-1, options.argmax(-1, keepdim=True), 1.0)
        blocks.append(hot.transpose(2, 3) if within_rule else hot.view_as(block))
    return mask_padding(pack_blocks(blocks, weights), lengths).detach()


def rule_marginals(rules: Tensor, lengths: Tensor, given_rule: Tensor | None = None) -> Tensor:
    """The probability that a derivation uses each split with each rule, ``(batch, T, 2)``; O(n^3).

    Mass flows from the root down: ``mass(child) += G(split, rule) * mass(parent)``.

    Args:
        rules: ``(batch, T, 2)``, the probabilities G of the options of every span.
        lengths: ``(batch,)``, the sentences' lengths.
        given_rule: for the normal form, ``(batch, T, 2)``, the probabilities of split points given the span's rule. The
            mass that reaches a span as the left child of rule R goes to options of the other rule only.
    """
    max_length, batch = length_of(rules), rules.shape[0]
    from_left = rules.new_zeros(batch, max_length + 1, max_length + 1, 2)  # [i, width, parent's rule]
    from_right = rules.new_zeros(batch, max_length + 1, max_length + 1)  # [k, width]
    blocks: list[Tensor] = []
    for width in range(max_length, 1, -1):
        starts = max_length - width + 1
        # the mass of each span, as a right child or the root, and as a left child; only the latter may be restricted
        unrestricted = from_right[:, width:, width] + is_root(lengths, width, starts, rules.dtype)
        as_left_child = from_left[:, :starts, width]  # (batch, start, rule of the parent)
        block = width_block(rules, max_length, width)
        if given_rule is None:
            marginals = (unrestricted + as_left_child.sum(-1))[..., None, None] * block
        else:
            marginals = unrestricted[..., None, None] * block
            # flipped: what comes from a straight parent goes to inverted options, and vice versa
            restricted = as_left_child.flip(-1)[:, :, None] * width_block(given_rule, max_length, width)
            marginals = marginals + restricted
        from_left[:, :starts, 1:width] += marginals
        from_right[:, width:, 1:width] += marginals.sum(-1).flip(2)
        blocks.append(marginals)
    return pack_blocks(blocks[::-1], rules)


def expected_matrix(rules: Tensor, lengths: Tensor, given_rule: Tensor | None = None) -> Tensor:
    """The expected permutation matrix ``(batch, position, token)``; O(n^4).

    ``mu(i,k,p)`` is the probability that (i,k) is a constituent whose output starts at p. Each split sends

        S:  mu(i,j,p)     += G_S mu(i,k,p)      mu(j,k,p+j-i) += G_S mu(i,k,p)
        I:  mu(i,j,p+k-j) += G_I mu(i,k,p)      mu(j,k,p)     += G_I mu(i,k,p)

    and ``E[M](p, t) = mu(t, t+1, p)``. Padding is the identity. ``given_rule`` is for the normal form, as in
    `rule_marginals`.
    """
    max_length, batch = length_of(rules), rules.shape[0]
    # mu by the span's left or right end, its width, and the output position where it starts or ends (one past its last)
    shape = (batch, max_length + 1, max_length + 1, max_length + 1)
    left_start, left_end, right_start, right_end = (rules.new_zeros(shape) for _ in range(4))
    for width in range(max_length, 0, -1):
        starts = max_length - width + 1
        # mu of each span (batch, start, position) as the left child of a straight and of an inverted rule (copies,
        # because the charts are changed below), and as a right child or the root, where no rule is forbidden
        straight_left = left_start[:, :starts, width, :starts].clone()
        inverted_left = left_end[:, :starts, width, width:].clone()
        unrestricted = right_start[:, width:, width, :starts] + right_end[:, width:, width, width:]
        at_root = is_root(lengths, width, starts, rules.dtype)[..., None]
        unrestricted = unrestricted + at_root * is_root(lengths, width, starts, rules.dtype)[:, None]
        if width == 1:
            reached = unrestricted + straight_left + inverted_left + attached_zeros(rules)[:, None, None]
            matrix = reached.transpose(1, 2)  # from (batch, token, position)
            return torch.where(inside_square(lengths, max_length), matrix, torch.eye(max_length).to(matrix))
        straight, inverted = width_block(rules, max_length, width)[..., None].unbind(
            3
        )  # (batch, start, split, 1)
        if given_rule is None:
            mu = (unrestricted + straight_left + inverted_left)[:, :, None]
            straight, inverted = straight * mu, inverted * mu  # (batch, start, split, position)
        else:
            # a left child of an inverted rule is straight, and that of a straight rule inverted
            given_straight, given_inverted = width_block(given_rule, max_length, width)[..., None].unbind(3)
            straight = straight * unrestricted[:, :, None] + given_straight * inverted_left[:, :, None]
            inverted = inverted * unrestricted[:, :, None] + given_inverted * straight_left[:, :, None]
        left_start[:, :starts, 1:width, :starts] += straight
        right_end[:, width:, 1:width, width:] += straight.flip(2)
        left_end[:, :starts, 1:width, width:] += inverted
        right_start[:, width:, 1:width, :starts] += inverted.flip(2)
    raise AssertionError("a sentence has at least one token")


def tagging_inside(scores: Tensor, emissions: Tensor, lengths: Tensor, normal_form: bool = False) -> Tensor:
    """The log of the summed weight of all derivations times their emissions, ``(batch,)``; O(n^4).

        C(i,i+1,p) = emission(i, p)
        C(i,k,p) = logsumexp_j { score_S + C(i,j,p) + C(j,k,p+j-i),  score_I + C(j,k,p) + C(i,j,p+k-j) }

    and the result is ``C(0,n,0)``. ``emissions`` are ``(batch, token, position)``, finite.
    """
    max_length, batch = length_of(scores), scores.shape[0]
    scores = mask_padding(scores, lengths)
    emissions = torch.where(inside_square(lengths, max_length), emissions, emissions.new_zeros(()))
    shape = (batch, max_length + 1, max_length + 1, max_length + 1)
    left_start, left_end, right_start, right_end = (scores.new_zeros(shape) for _ in range(4))
    roots = []
    total = starting = ending = emissions
    for width in range(1, max_length + 1):
        starts = max_length - width + 1
        if width > 1:
            straight_score, inverted_score = width_block(scores, max_length, width)[..., None].unbind(3)
            straight = straight_score + left_start[:, :starts, 1:width, :starts]
            straight = straight + right_end[:, width:, 1:width, width:].flip(2)
            inverted = inverted_score + right_start[:, width:, 1:width, :starts].flip(2)
            inverted = inverted + left_end[:, :starts, 1:width, width:]
            by_rule = torch.stack([straight, inverted], dim=-1).logsumexp(2)  # (batch, start, position, rule)
            total = by_rule.logsumexp(-1)
            # a left child starts where a straight parent does and ends where an inverted one does
            ending, starting = by_rule.unbind(-1) if normal_form else (total, total)
        left_start[:, :starts, width, :starts] = starting
        left_end[:, :starts, width, width:] = ending
        right_start[:, width:, width, :starts] = total
        right_end[:, width:, width, width:] = total
        roots.append(total[:, 0, 0])
    return at_length(torch.stack(roots, dim=1), lengths) + attached_zeros(scores)


def walk(
    weights: Tensor, lengths: Tensor, uniforms: Tensor | None = None, normal_form: bool = False
) -> tuple[Tensor, Tensor]:
    """Build derivations from the root down, choosing one option of ``weights`` (gamma) for every span on the way.

    With ``uniforms`` ``(samples, batch, n - 1)`` in [0, 1) options are drawn (see `choose`), one number for each;
    without them the heaviest options are taken, and there is one sample. All samples of all sentences (*walkers*) take
    their steps together.

    Returns:
        nodes: ``(samples, batch, n - 1, 4)``, the internal nodes (i, j, k, rule) in pre-order, -1 beyond the last.
        orders: ``(samples, batch, n)``, the token at every position; padding stays where it is.
    """
    max_length, batch = length_of(weights), weights.shape[0]
    samples = 1 if uniforms is None else uniforms.shape[0]
    device, count = weights.device, samples * batch
    weights = weights.detach()
    row = torch.arange(batch, device=device).repeat(samples)  # the sentence of each walker
    walker = torch.arange(count, device=device)
    orders = torch.arange(max_length, device=device).repeat(count, 1)
    nodes = torch.full((count, max_length - 1, 4), -1, device=device)
    # a stack of open spans per walker: start, end, position, and the rule it may not use (-1: none)
    stack = torch.zeros((count, max_length + 1, 4), dtype=torch.int64, device=device)
    stack[:, 0, 1] = lengths.repeat(samples)
    stack[:, 0, 3] = -1
    depth = (lengths.repeat(samples) > 1).long()
    option = torch.arange(2 * (max_length - 1), device=device)
    offsets = torch.tensor(
        [0, 0, *(split_offset(max_length, w) for w in range(2, max_length + 1))], device=device
    )
    for step in range(max_length - 1):
        start, end, position, forbidden = stack[walker, (depth - 1).clamp(min=0)].unbind(-1)
        # walkers that are done choose too, but it is not recorded
        width = torch.where(depth > 0, end - start, 2)
        # the options of a span are consecutive in the flattened weights: rule by rule, split point by split point
        first = 2 * (offsets[width] + start * (width - 1))
        allowed = (option < 2 * (width - 1)[:, None]) & (option % 2 != forbidden[:, None])
        index = (first[:, None] + option).clamp(max=2 * weights.shape[1] - 1)
        values = weights.flatten(1)[row[:, None], index].masked_fill(~allowed, -torch.inf)
        chosen = choose(values, None if uniforms is None else uniforms[:, :, step].flatten())
        rule, middle = chosen % 2, start + chosen // 2 + 1
        active = depth > 0
        node = torch.stack([start, middle, end, rule], dim=-1)
        nodes[:, step] = torch.where(active[:, None], node, -1)
        depth = depth - active.long()
        no_rule = torch.full_like(rule, -1)
        straight = rule == 0
        right = (middle, end, torch.where(straight, position + middle - start, position), no_rule)
        left = (start, middle, torch.where(straight, position, position + end - middle), rule)
        for child_start, child_end, child_position, child_forbidden in (right, left):
            leaf = active & (child_end - child_start == 1)
            orders[walker[leaf], child_position[leaf]] = child_start[leaf]
            open_span = active & (child_end - child_start > 1)
            entry = [child_start, child_end, child_position, child_forbidden if normal_form else no_rule]
            stack[walker[open_span], depth[open_span]] = torch.stack(entry, dim=-1)[open_span]
            depth = depth + open_span.long()
    return nodes.view(samples, batch, max_length - 1, 4), orders.view(samples, batch, max_length)
