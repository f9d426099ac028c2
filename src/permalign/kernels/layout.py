"""The packed layout of spans and splits, masks and padding: what all kernels and distributions share.

A sentence of n tokens has fenceposts ``0..n``; a *span* ``(i, k)`` covers tokens ``i..k-1``; a *split* is a triple
``i < j < k``. Splits are ordered by width ``w = k - i``, then by ``i``, then by ``j``, so that width ``w`` is one
contiguous block, a view of which is ``(n - w + 1, w - 1)``, and no cubic padding is stored. Spans are ordered by width,
then by ``i``.

In a batch, n is the length that all sentences are padded to, and ``lengths`` (batch,) are their own lengths.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from permalign.masks import length_mask

LEAF = 2
"""The number that a walk records in place of a rule (0 straight, 1 inverted) where a span is a leaf."""

LANES = 4
"""How many cells of a row the pruned kernels compute at a time; a row of their charts has room for the last of them."""


def split_count(length: int) -> int:
    """How many splits ``i < j < k`` a sentence has: (n^3 - n) / 6.

    >>> [split_count(n) for n in (1, 2, 3, 4, 25)]
    [0, 1, 4, 10, 2600]
    """
    return (length**3 - length) // 6


def split_offset(length: int, width: int) -> int:
    """Where the block of splits of this width begins: the number of narrower splits.

    Narrower widths are ``u + 1`` for ``u = 1..w-2``, each with ``(n - u) * u`` splits.

    >>> [split_offset(4, width) for width in (2, 3, 4, 5)]
    [0, 3, 7, 10]
    """
    narrower = width - 2
    return length * narrower * (width - 1) // 2 - narrower * (width - 1) * (2 * width - 3) // 6


def span_offset(length: int, width: int) -> int:
    """Where the spans of this width begin.

    >>> [span_offset(4, width) for width in (1, 2, 3, 4)]
    [0, 4, 7, 9]
    """
    return (width - 1) * (length + 1) - width * (width - 1) // 2


def span_count(length: int) -> int:
    """How many spans a sentence has.

    >>> span_count(4)
    10
    """
    return span_offset(length, length + 1)


def leaf_count(length: int, max_phrase_length: int) -> int:
    """How many spans of at most ``max_phrase_length`` tokens a sentence has: its leaves, where phrases may be leaves.

    >>> leaf_count(4, 1), leaf_count(4, 2), leaf_count(4, 9)
    (4, 7, 10)
    """
    return span_offset(length, min(max_phrase_length, length) + 1)


def max_phrase_length_of(length: int, leaves: int) -> int | None:
    """The inverse of `leaf_count`: how many tokens the longest leaf covers, or None if no length fits.

    >>> max_phrase_length_of(4, 4), max_phrase_length_of(4, 7), max_phrase_length_of(4, 8)
    (1, 2, None)
    """
    return next((width for width in range(1, length + 1) if leaf_count(length, width) == leaves), None)


def leaf_spans(length: int, leaves: int) -> tuple[Tensor, Tensor]:
    """The first token of every leaf, and how many tokens it covers.

    >>> leaf_spans(3, 5)
    (tensor([0, 1, 2, 0, 1]), tensor([1, 1, 1, 2, 2]))
    """
    max_phrase_length = max_phrase_length_of(length, leaves)
    if max_phrase_length is None:
        raise ValueError(
            f"a sentence of {length} tokens cannot have {leaves} leaves: all spans of 1, 2, ... tokens must be leaves"
        )
    starts = [torch.arange(length - width + 1) for width in range(1, max_phrase_length + 1)]
    widths = [torch.full_like(start, width) for width, start in enumerate(starts, start=1)]
    return torch.cat(starts), torch.cat(widths)


def positioned_offset(length: int, width: int) -> int:
    """Where width ``w`` begins in a chart of (span, start position) pairs.

    A span of width ``w`` can start at ``n - w + 1`` output positions, so a width is a square block
    ``(n - w + 1, n - w + 1)`` indexed ``[i, position]``.

    >>> [positioned_offset(3, width) for width in (1, 2, 3, 4)]
    [0, 9, 13, 14]
    """
    return sum((length - narrower + 1) ** 2 for narrower in range(1, width))


def length_of_split_count(splits: int) -> int | None:
    """The inverse of `split_count`: the length of a sentence with this many splits, or None if no length fits.

    >>> length_of_split_count(2600), length_of_split_count(0), length_of_split_count(5)
    (25, 1, None)
    """
    length = max(1, round((6 * splits) ** (1 / 3)))
    return next((n for n in (length, length + 1) if split_count(n) == splits), None)


# Layouts are cached as arrays: a tensor that is made while a program is traced is a fake one, and must not be cached.


@lru_cache(maxsize=64)
def span_offsets(length: int) -> npt.NDArray[np.int64]:
    """`span_offset` of every width ``0..n+1`` (zero below 1)."""
    return np.array([0, *(span_offset(length, width) for width in range(1, length + 2))], dtype=np.int64)


@lru_cache(maxsize=64)
def split_offsets(length: int) -> npt.NDArray[np.int64]:
    """`split_offset` of every width ``0..n+1`` (zero below 2), for the compiled kernels."""
    return np.array([0, 0, *(split_offset(length, width) for width in range(2, length + 2))], dtype=np.int64)


@lru_cache(maxsize=64)
def positioned_offsets(length: int) -> npt.NDArray[np.int64]:
    """`positioned_offset` of every width ``0..n+1`` (zero below 1), for the compiled kernels."""
    squares = [(length - width + 1) ** 2 for width in range(1, length + 1)]
    return np.concatenate([[0, 0], np.cumsum(squares)]).astype(np.int64)


def split_fenceposts(length: int) -> Tensor:
    """The fenceposts ``(i, j, k)`` of every split, in packed order: an int64 tensor ``(T, 3)``.

    >>> split_fenceposts(3).tolist()
    [[0, 1, 2], [1, 2, 3], [0, 1, 3], [0, 2, 3]]
    """
    return torch.from_numpy(_split_fenceposts(length))


@lru_cache(maxsize=8)
def _split_fenceposts(length: int) -> npt.NDArray[np.int64]:
    blocks = [np.zeros((0, 3), dtype=np.int64)]
    for width in range(2, length + 1):
        start = np.arange(length - width + 1)[:, None]
        middle = start + np.arange(1, width)
        blocks.append(np.stack(np.broadcast_arrays(start, middle, start + width), axis=-1).reshape(-1, 3))
    return np.concatenate(blocks)


def valid_splits(length: int, lengths: Tensor) -> Tensor:
    """Which splits lie inside each sentence: ``(batch, T)``, true where ``k <= length``."""
    ends = torch.from_numpy(_split_ends(length)).to(lengths.device)
    return ends <= lengths[:, None]


@lru_cache(maxsize=8)
def _split_ends(length: int) -> npt.NDArray[np.int32]:
    """The fencepost ``k`` of every split; without ``i`` and ``j``, for there are many splits."""
    ends = [np.repeat(np.arange(width, length + 1), width - 1) for width in range(2, length + 1)]
    return np.concatenate([np.zeros(0, np.int32), *ends], dtype=np.int32)


def split_index(length: int, start: Tensor, middle: Tensor, end: Tensor) -> Tensor:
    """The indices of splits in the packed layout.

    >>> split_index(3, *split_fenceposts(3).unbind(-1))
    tensor([0, 1, 2, 3])
    """
    offsets = torch.from_numpy(split_offsets(length)).to(start.device)
    width = end - start
    return offsets[width] + start * (width - 1) + middle - start - 1


# --- Tensors in the packed layout -----------------------------------------------------------------------------


def length_of(splits: Tensor) -> int:
    """The length n of sentences with packed splits ``(batch, T, ...)``."""
    length = length_of_split_count(splits.shape[1])
    if length is None:
        raise ValueError(
            f"no sentence has {splits.shape[1]} splits; a sentence of n tokens has (n^3 - n) / 6"
        )
    return length


def width_block(splits: Tensor, length: int, width: int) -> Tensor:
    """The splits of one width as ``(batch, n - w + 1, w - 1, ...)``."""
    block = splits[:, split_offset(length, width) : split_offset(length, width + 1)]
    return block.reshape(splits.shape[0], length - width + 1, width - 1, *splits.shape[2:])


def pack_blocks(blocks: Sequence[Tensor], like: Tensor) -> Tensor:
    """The inverse of `width_block` for the widths 2..n in order; ``like`` if there are no blocks."""
    if not blocks:
        return like
    return torch.cat([block.reshape(like.shape[0], -1, *like.shape[2:]) for block in blocks], dim=1)


def mask_padding(splits: Tensor, lengths: Tensor) -> Tensor:
    """The splits with zeros at padding, whatever was there before, NaN included."""
    valid = valid_splits(length_of(splits), lengths)
    return torch.where(valid[..., None], splits, splits.new_zeros(()))


def attached_zeros(splits: Tensor) -> Tensor:
    """Zeros ``(batch,)`` attached to the splits, so that sentences of one token have gradients (of zero)."""
    return splits[:, :0].sum((1, 2))


def at_length(values: Tensor, lengths: Tensor) -> Tensor:
    """Pick ``values[b, lengths[b] - 1]`` from values of the spans (0, 1), (0, 2), ..., (0, n)."""
    return values.gather(1, lengths[:, None] - 1).squeeze(1)


def is_root(lengths: Tensor, width: int, starts: int, dtype: torch.dtype) -> Tensor:
    """One for the span (0, width) in sentences of that length, zero elsewhere: ``(batch, start)``."""
    first = torch.arange(starts, device=lengths.device) == 0
    return ((lengths == width)[:, None] & first).to(dtype)


def inside_square(lengths: Tensor, length: int) -> Tensor:
    """True where both indices lie inside the sentence: ``(batch, n, n)``."""
    present = length_mask(lengths, length)
    return present[:, :, None] & present[:, None]


def masked_tokens(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Token scores ``(batch, n, K)`` with zeros at padding, whatever was there before, NaN included."""
    present = length_mask(lengths, tokens.shape[1])
    return torch.where(present[..., None], tokens, tokens.new_zeros(()))


def length_of_spans(chart: Tensor) -> int:
    """The length n of sentences with a packed chart of spans ``(batch, n (n + 1) / 2, ...)``."""
    return int((2 * chart.shape[1]) ** 0.5)


def root_scores(chart: Tensor, root: Tensor, lengths: Tensor) -> Tensor:
    """Log-weights ``(batch, K)`` of every label at the root of each sentence, from a chart ``(batch, spans, K)``."""
    length = length_of_spans(chart)
    offsets = torch.tensor([span_offset(length, width) for width in range(1, length + 1)])
    tops = offsets.to(lengths.device)[lengths - 1]
    return root + chart[torch.arange(chart.shape[0], device=lengths.device), tops]


def by_ends(chart: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """A packed chart of spans, indexed by left end and width and by right end and width.

    Each of the two is ``(batch, n + 1, n + 1, ...)``.
    """
    shape = (chart.shape[0], length + 1, length + 1, *chart.shape[2:])
    left, right = chart.new_zeros(shape), chart.new_zeros(shape)
    for width in range(1, length + 1):
        cell = chart[:, span_offset(length, width) : span_offset(length, width + 1)]
        left[:, : length - width + 1, width] = cell
        right[:, width:, width] = cell
    return left, right
