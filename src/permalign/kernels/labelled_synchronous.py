"""Labelled charts over source spans and output spans in plain torch, vectorised by width; double precision.

With ``C(i,k,p,q,a)`` the log-weight of all labelled trees of (i,k) with label a that write the words p..q-1,

    C(i,i+1,p,q,a) = token(i,a) + segment(i, p, q - p)
    C(i,k,p,q,a) = logsumexp over j, r, b, c of { rule(0,a,b,c) + split(i,j,k,0) + C(i,j,p,r,b) + C(j,k,r,q,c),
                                                  rule(1,a,b,c) + split(i,j,k,1) + C(i,j,r,q,b) + C(j,k,p,r,c) }

children are summed for every pair of their labels and then contracted with the rules, as in
`permalign.kernels.labelled`: O(n^3 m^3 K^2 + n^2 m^2 K^3).
"""

import torch
from torch import Tensor

from permalign.kernels.labelled import masked_tokens, needs_logs, parent
from permalign.kernels.portable import attached_zeros, mask_padding, width_block
from permalign.kernels.portable_synchronous import LOG_ZERO, band, leaves_of
from permalign.kernels.synchronous_walks import LabelledOptions, Walks, choose, dense, dense_scores, walk


def inside(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    maximise: bool = False,
) -> tuple[Tensor, list[Tensor]]:
    """Log-weights ``(batch, K)`` of the outputs by label of the root; and cells by width, ``(batch, i, p, q, K)``."""
    words, logs = tokens.shape[1], needs_logs(rules, root, torch.float64)
    scores, rules = mask_padding(splits, lengths).double(), rules.double()
    (leaves,) = leaves_of(segments.double(), words, lengths, target_lengths)
    cells = [leaves[..., None] + masked_tokens(tokens, lengths).double()[:, :, None, None]]
    for width in range(2, words + 1):
        left, right = _children(cells, width)  # (batch, i, p, q, rule, split and r, K)
        score = width_block(scores, words, width).transpose(2, 3)  # (batch, i, rule, split)
        score = score.repeat_interleave(segments.shape[2], 3)[:, :, None, None]
        cell = parent(left, right, score, rules, logs, maximise)
        possible = band(segments, lengths, target_lengths, width)[:, None, ..., None]
        cells.append(torch.where(possible, cell, LOG_ZERO))
    row = torch.arange(tokens.shape[0], device=tokens.device)
    tops = torch.stack([cell[:, 0] for cell in cells], 1)[row, lengths - 1, 0, target_lengths]
    unused = attached_zeros(scores)[:, None] + rules.flatten()[:0].sum()  # zero: one word needs neither
    return root.double() + tops + unused, cells


def _children(cells: list[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Left and right children of all spans of a width, for each rule, and each split and middle of words."""
    starts, inner = cells[0].shape[1] - width + 1, range(1, width)
    left = torch.stack([cells[one - 1][:, :starts] for one in inner], 2)  # (batch, i, split, from, to, K)
    right = torch.stack([cells[width - one - 1][:, one : one + starts] for one in inner], 2)
    posts = left.shape[3]
    # the child that comes first writes from p to r, the other from r to q: (batch, i, p, q, split, r, K)
    first, second = (
        [child.permute(axes).unsqueeze(place).expand(shape) for child in (left, right)]
        for axes, place, shape in (
            ((0, 1, 3, 2, 4, 5), 3, (-1, -1, -1, posts, -1, -1, -1)),
            ((0, 1, 4, 2, 3, 5), 2, (-1, -1, posts, -1, -1, -1, -1)),
        )
    )
    lefts = torch.stack([first[0], second[0]], 4).flatten(5, 6)
    rights = torch.stack([second[1], first[1]], 4).flatten(5, 6)
    return lefts, rights


def labelled_walk(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None = None,
) -> Walks:
    """Labelled derivations of the outputs: the best ones, or drawn by ``uniforms`` ``(samples, batch, n)``.

    The first uniform number is for the label of the root. Roots without room for so many words are not walked.
    """
    rules, root, tokens, splits = (part.detach() for part in (rules, root, tokens, splits))
    pair = segments.detach(), lengths, target_lengths
    tops, cells = inside(rules, root, tokens, splits, *pair, maximise=uniforms is None)
    samples = 1 if uniforms is None else uniforms.shape[0]
    many = tops.repeat(samples, 1)
    labels = choose(many, None if uniforms is None else uniforms[..., 0].reshape(-1).double())
    room = target_lengths <= lengths * (segments.shape[3] - 1)
    roots = torch.where(room, labels.view(samples, len(lengths)), -2)
    scores = dense_scores(mask_padding(splits, lengths).double())
    options = LabelledOptions(scores, dense(cells), rules.double())
    draws = None if uniforms is None else uniforms[..., 1:]
    return walk(options, roots, lengths, target_lengths, tokens.shape[1], draws)
