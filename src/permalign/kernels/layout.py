"""The packed layout of spans and splits that every chart algorithm here shares.

Fenceposts ``0..n``; a *span* ``(i, k)`` covers tokens ``i..k-1``; a *split* is a triple ``i < j < k``. Splits are
ordered by width ``w = k - i``, then by ``i``, then by ``j``, so that width ``w`` is one contiguous block that views
as ``(n - w + 1, w - 1)`` and no cubic padding is stored. Spans are ordered by width, then by ``i``.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

LEAF = 2
"""Stands in place of a rule (0 straight, 1 inverted) where a walk chooses that a span is a leaf."""


def split_count(words: int) -> int:
    """How many splits ``i < j < k`` a sentence has: (n^3 - n) / 6.

    >>> [split_count(n) for n in (1, 2, 3, 4, 25)]
    [0, 1, 4, 10, 2600]
    """
    return (words**3 - words) // 6


def split_offset(words: int, width: int) -> int:
    """Where the block of splits of this width begins: the number of narrower splits.

    Narrower widths are ``u + 1`` for ``u = 1..w-2``, each with ``(n - u) * u`` splits.

    >>> [split_offset(4, width) for width in (2, 3, 4, 5)]
    [0, 3, 7, 10]
    """
    narrower = width - 2
    return words * narrower * (width - 1) // 2 - narrower * (width - 1) * (2 * width - 3) // 6


def span_offset(words: int, width: int) -> int:
    """Where the spans of this width begin.

    >>> [span_offset(4, width) for width in (1, 2, 3, 4)]
    [0, 4, 7, 9]
    """
    return (width - 1) * (words + 1) - width * (width - 1) // 2


def leaf_count(words: int, longest_phrase: int) -> int:
    """How many spans of at most so many tokens a sentence has: its leaves, where phrases may be leaves.

    >>> leaf_count(4, 1), leaf_count(4, 2), leaf_count(4, 9)
    (4, 7, 10)
    """
    return span_offset(words, min(longest_phrase, words) + 1)


def max_phrase_length_of(words: int, leaves: int) -> int | None:
    """How many tokens the longest of so many leaves covers, or None if there cannot be so many.

    >>> max_phrase_length_of(4, 4), max_phrase_length_of(4, 7), max_phrase_length_of(4, 8)
    (1, 2, None)
    """
    return next((width for width in range(1, words + 1) if leaf_count(words, width) == leaves), None)


def leaf_spans(words: int, leaves: int) -> tuple[Tensor, Tensor]:
    """The first token of every leaf, and how many tokens it covers.

    >>> leaf_spans(3, 5)
    (tensor([0, 1, 2, 0, 1]), tensor([1, 1, 1, 2, 2]))
    """
    longest = max_phrase_length_of(words, leaves)
    if longest is None:
        raise ValueError(f"{leaves} leaves are not all spans of at most so many tokens of {words}")
    starts = [torch.arange(words - width + 1) for width in range(1, longest + 1)]
    widths = [torch.full_like(start, width) for width, start in enumerate(starts, start=1)]
    return torch.cat(starts), torch.cat(widths)


def positioned_offset(words: int, width: int) -> int:
    """Where width ``w`` begins in a chart of (span, start position) pairs.

    A span of width ``w`` can start at ``n - w + 1`` output positions, so a width is a square block
    ``(n - w + 1, n - w + 1)`` indexed ``[i, position]``.

    >>> [positioned_offset(3, width) for width in (1, 2, 3, 4)]
    [0, 9, 13, 14]
    """
    return sum((words - narrower + 1) ** 2 for narrower in range(1, width))


def length_of_split_count(splits: int) -> int | None:
    """The sentence length that has so many splits, or None if there is none.

    >>> length_of_split_count(2600), length_of_split_count(0), length_of_split_count(5)
    (25, 1, None)
    """
    words = max(1, round((6 * splits) ** (1 / 3)))
    return next((n for n in (words, words + 1) if split_count(n) == splits), None)


@lru_cache(maxsize=64)
def span_offsets(words: int) -> Tensor:
    """`span_offset` of every width ``0..n+1`` (zero below 1)."""
    return torch.tensor([0, *(span_offset(words, width) for width in range(1, words + 2))])


@lru_cache(maxsize=64)
def split_offsets(words: int) -> npt.NDArray[np.int64]:
    """`split_offset` of every width ``0..n+1`` (zero below 2), for the compiled kernels."""
    return np.array([0, 0, *(split_offset(words, width) for width in range(2, words + 2))], dtype=np.int64)


@lru_cache(maxsize=64)
def positioned_offsets(words: int) -> npt.NDArray[np.int64]:
    """`positioned_offset` of every width ``0..n+1`` (zero below 1), for the compiled kernels."""
    squares = [(words - width + 1) ** 2 for width in range(1, words + 1)]
    return np.concatenate([[0, 0], np.cumsum(squares)]).astype(np.int64)


@lru_cache(maxsize=8)
def split_fenceposts(words: int) -> Tensor:
    """The fenceposts ``(i, j, k)`` of every split, in packed order: an int64 tensor ``(T, 3)``.

    >>> split_fenceposts(3).tolist()
    [[0, 1, 2], [1, 2, 3], [0, 1, 3], [0, 2, 3]]
    """
    blocks = []
    for width in range(2, words + 1):
        start = torch.arange(words - width + 1)[:, None].expand(-1, width - 1)
        middle = start + torch.arange(1, width)
        blocks.append(torch.stack([start, middle, start + width], dim=-1).reshape(-1, 3))
    return torch.cat(blocks) if blocks else torch.zeros((0, 3), dtype=torch.int64)


def valid_splits(words: int, lengths: Tensor) -> Tensor:
    """Which splits lie inside each sentence: ``(batch, T)``, true where ``k <= length``."""
    ends = split_fenceposts(words)[:, 2].to(lengths.device)
    return ends <= lengths[:, None]


def split_index(words: int, start: Tensor, middle: Tensor, end: Tensor) -> Tensor:
    """Where splits stand in the packed layout.

    >>> split_index(3, *split_fenceposts(3).unbind(-1))
    tensor([0, 1, 2, 3])
    """
    offsets = torch.from_numpy(split_offsets(words)).to(start.device)
    width = end - start
    return offsets[width] + start * (width - 1) + middle - start - 1


# --- Tensors in the packed layout


def length_of(splits: Tensor) -> int:
    """The sentence length of packed splits ``(batch, T, ...)``."""
    words = length_of_split_count(splits.shape[1])
    if words is None:
        raise ValueError(f"{splits.shape[1]} splits fit no sentence length; expected (n^3 - n) / 6")
    return words


def width_block(splits: Tensor, words: int, width: int) -> Tensor:
    """The splits of one width as ``(batch, n - w + 1, w - 1, ...)``."""
    block = splits[:, split_offset(words, width) : split_offset(words, width + 1)]
    return block.reshape(splits.shape[0], words - width + 1, width - 1, *splits.shape[2:])


def pack_blocks(blocks: Sequence[Tensor], like: Tensor) -> Tensor:
    """The inverse of `width_block` for the widths 2..n in order."""
    if not blocks:
        return like
    return torch.cat([block.reshape(like.shape[0], -1, *like.shape[2:]) for block in blocks], dim=1)


def mask_padding(splits: Tensor, lengths: Tensor) -> Tensor:
    """Zero where a split reaches beyond its sentence (whatever stood there, NaN included)."""
    valid = valid_splits(length_of(splits), lengths)
    return torch.where(valid[..., None], splits, splits.new_zeros(()))


def attached_zeros(splits: Tensor) -> Tensor:
    """Zeros ``(batch,)`` that depend on the splits in name, so that one-word sentences have gradients (of zero)."""
    return splits[:, :0].sum((1, 2))


def at_length(values: Tensor, lengths: Tensor) -> Tensor:
    """Pick ``values[b, lengths[b] - 1]`` from values of the spans (0, 1), (0, 2), ..., (0, n)."""
    return values.gather(1, lengths[:, None] - 1).squeeze(1)


def is_root(lengths: Tensor, width: int, starts: int, dtype: torch.dtype) -> Tensor:
    """One for the span (0, width) of the sentences of that length, zero elsewhere: ``(batch, start)``."""
    first = torch.arange(starts, device=lengths.device) == 0
    return ((lengths == width)[:, None] & first).to(dtype)


def inside_square(lengths: Tensor, words: int) -> Tensor:
    """True where both indices lie inside the sentence: ``(batch, n, n)``."""
    present = torch.arange(words, device=lengths.device) < lengths[:, None]
    return present[:, :, None] & present[:, None]


def masked_tokens(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Token scores ``(batch, n, K)``, zero at padding, whatever stood there."""
    present = torch.arange(tokens.shape[1], device=lengths.device) < lengths[:, None]
    return torch.where(present[..., None], tokens, tokens.new_zeros(()))


def length_of_spans(chart: Tensor) -> int:
    """The sentence length of a packed chart ``(batch, n (n + 1) / 2, ...)``."""
    return int((2 * chart.shape[1]) ** 0.5)


def root_scores(chart: Tensor, root: Tensor, lengths: Tensor) -> Tensor:
    """Log weights ``(batch, K)`` of every label at the top of each sentence."""
    words = length_of_spans(chart)
    offsets = torch.tensor([span_offset(words, width) for width in range(1, words + 1)])
    tops = offsets.to(lengths.device)[lengths - 1]
    return root + chart[torch.arange(chart.shape[0], device=lengths.device), tops]


def by_ends(chart: Tensor, words: int) -> tuple[Tensor, Tensor]:
    """A packed chart by left end and width, and by right end and width: twice ``(batch, n + 1, n + 1, ...)``."""
    shape = (chart.shape[0], words + 1, words + 1, *chart.shape[2:])
    left, right = chart.new_zeros(shape), chart.new_zeros(shape)
    for width in range(1, words + 1):
        cell = chart[:, span_offset(words, width) : span_offset(words, width + 1)]
        left[:, : words - width + 1, width] = cell
        right[:, width:, width] = cell
    return left, right
