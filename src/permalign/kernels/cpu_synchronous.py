"""The compiled charts of reordering and alignment as torch operators, ``torch.ops.permalign.synchronous_*``."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.arrays import as_array, layout_of, require_shape
from permalign.kernels.compiled import synchronous as loops
from permalign.kernels.compiled import synchronous_walking
from permalign.kernels.layout import span_offset
from permalign.kernels.portable import words_of
from permalign.kernels.threads import for_each_sentence


@lru_cache(maxsize=64)
def _span_offsets(words: int) -> npt.NDArray[np.int64]:
    """Where the spans of every width begin."""
    return np.array([0, *(span_offset(words, width) for width in range(1, words + 2))], dtype=np.int64)


def layout_of_pairs(scores: Tensor, lengths: Tensor, target_lengths: Tensor, most: int) -> tuple[Any, ...]:
    """Lengths of both sides, checked, and where widths begin; compiled loops do not check bounds."""
    source_lengths, splits_at = layout_of(scores, lengths)
    words = as_array(target_lengths)
    if words.shape != source_lengths.shape or words.min() < 0 or words.max() > most:
        raise ValueError(f"target_lengths must be one for each sentence and lie in 0..{most}")
    return source_lengths, words, splits_at, _span_offsets(words_of(scores))


def require_segments(scores: Tensor, segments: Tensor) -> None:
    """A shape and dtype that loops rely on."""
    shape = (scores.shape[0], words_of(scores), *segments.shape[2:])
    if segments.dim() != 4 or 0 in segments.shape:
        raise ValueError(f"segments has shape {tuple(segments.shape)}, but must be (batch, n, m + 1, L + 1)")
    require_shape("segments", segments, shape, scores)


def chart_shape(scores: Tensor, starts: int) -> tuple[int, int, int, int]:
    """Batch, spans, and output fenceposts twice."""
    return scores.shape[0], span_offset(words_of(scores), words_of(scores) + 1), starts, starts


@custom_op("permalign::synchronous_inside", mutates_args=(), device_types="cpu")
def synchronous_inside(
    scores: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, maximise: bool
) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable_synchronous.inside`; returns the chart too, for the backward pass and walks."""
    require_segments(scores, segments)
    log_sum = torch.zeros(scores.shape[0], dtype=torch.float64)
    chart = torch.zeros(chart_shape(scores, segments.shape[2]), dtype=torch.float64)
    arrays = layout_of_pairs(scores, lengths, target_lengths, segments.shape[2] - 1)
    for_each_sentence(
        loops.synchronous_inside,
        scores.shape[0],
        as_array(scores),
        as_array(segments),
        *arrays,
        maximise,
        log_sum.numpy(),
        chart.numpy(),
    )
    return log_sum.to(scores.dtype), chart


@synchronous_inside.register_fake
def _(
    scores: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, maximise: bool
) -> tuple[Tensor, Tensor]:
    shape = chart_shape(scores, segments.shape[2])
    return scores.new_empty(scores.shape[0]), scores.new_empty(shape, dtype=torch.float64)


@custom_op("permalign::synchronous_inside_backward", mutates_args=(), device_types="cpu")
def synchronous_inside_backward(
    grad: Tensor, scores: Tensor, chart: Tensor, lengths: Tensor, target_lengths: Tensor, longest: int
) -> tuple[Tensor, Tensor]:
    """The adjoints of the scores and of the segments."""
    starts = chart.shape[2]
    grad_scores = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    grad_segments = scores.new_zeros(scores.shape[0], words_of(scores), starts, longest + 1)
    source_lengths, words, *offsets = layout_of_pairs(scores, lengths, target_lengths, starts - 1)
    arrays = (*(as_array(x) for x in (grad, scores, chart)), source_lengths, words, longest, *offsets)
    for_each_sentence(
        loops.synchronous_inside_backward,
        scores.shape[0],
        *arrays,
        grad_scores.numpy(),
        grad_segments.numpy(),
    )
    return grad_scores, grad_segments


@synchronous_inside_backward.register_fake
def _(
    grad: Tensor, scores: Tensor, chart: Tensor, lengths: Tensor, target_lengths: Tensor, longest: int
) -> tuple[Tensor, Tensor]:
    shape = (scores.shape[0], words_of(scores), chart.shape[2], longest + 1)
    return scores.new_empty(scores.shape), scores.new_empty(shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    scores, segments, lengths, target_lengths, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.longest = segments.shape[3] - 1
    ctx.save_for_backward(scores, output[1], lengths, target_lengths)


def _autograd(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (*synchronous_inside_backward(grad, *ctx.saved_tensors, ctx.longest), None, None, None)


synchronous_inside.register_autograd(_autograd, setup_context=_setup)


@custom_op("permalign::synchronous_walk", mutates_args=(), device_types="cpu")
def synchronous_walk(
    scores: Tensor,
    chart: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    longest: int,
    uniforms: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `permalign.kernels.synchronous_walks.walk` (not differentiable)."""
    batch, words = scores.shape[0], words_of(scores)
    if uniforms is None:
        uniforms = chart.new_full((1, batch, words - 1), -1.0)
    samples = uniforms.shape[0]
    require_shape("uniforms", uniforms, (samples, batch, words - 1), chart)
    nodes = torch.full((samples, batch, words - 1, 5), -1)
    orders, sizes = torch.arange(words).repeat(samples, batch, 1), torch.zeros(samples, batch, words).long()
    source_lengths, target_words, *offsets = layout_of_pairs(
        scores, lengths, target_lengths, chart.shape[2] - 1
    )
    arrays = (as_array(scores), as_array(chart), source_lengths, target_words, longest, *offsets)
    written = (nodes.numpy(), orders.numpy(), sizes.numpy())
    for_each_sentence(synchronous_walking.synchronous_walk, batch, *arrays, as_array(uniforms), *written)
    return nodes, torch.full_like(orders, -1), orders, sizes


@synchronous_walk.register_fake
def _(
    scores: Tensor,
    chart: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    longest: int,
    uniforms: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, words = scores.shape[0], words_of(scores)
    samples = 1 if uniforms is None else uniforms.shape[0]
    nodes = scores.new_empty((samples, batch, words - 1, 5), dtype=torch.int64)
    leaves, orders, sizes = (nodes.new_empty(samples, batch, words) for _ in range(3))
    return nodes, leaves, orders, sizes
