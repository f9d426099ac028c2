"""Separable derivations that write outputs: loops of `permalign.kernels.compiled.synchronous` as operators."""

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import synchronous as loops
from permalign.kernels.layout import length_of, max_phrase_length_of, span_offset, span_offsets
from permalign.kernels.operators.arrays import as_array, layout_of, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.threads import for_each_sentence


def layout_of_pairs(
    scores: Tensor, lengths: Tensor, target_lengths: Tensor, max_target_length: int
) -> tuple[Any, ...]:
    """The lengths of both sides, checked, and where each width of packed splits and of packed spans begins."""
    source_lengths, splits_at = layout_of(scores, lengths)
    output_lengths = as_array(target_lengths)
    fits = output_lengths.shape == source_lengths.shape
    if not fits or output_lengths.min() < 0 or output_lengths.max() > max_target_length:
        raise ValueError(f"target_lengths must be one for each sentence and lie in 0..{max_target_length}")
    return source_lengths, output_lengths, splits_at, span_offsets(length_of(scores))


def require_segments(scores: Tensor, segments: Tensor) -> None:
    """Require segments of a shape and dtype that the loops rely on."""
    if segments.dim() != 4 or 0 in segments.shape:
        raise ValueError(
            f"segments has shape {tuple(segments.shape)}, but must be (batch, leaves, m + 1, L + 1)"
        )
    if max_phrase_length_of(length_of(scores), segments.shape[1]) is None:
        raise ValueError(
            f"segments has {segments.shape[1]} leaves, but the leaves of {length_of(scores)} tokens must be all spans "
            "of 1, 2, ... tokens"
        )
    require_shape("segments", segments, (scores.shape[0], *segments.shape[1:]), scores)


def chart_shape(scores: Tensor, starts: int) -> tuple[int, int, int, int]:
    """The shape of a chart: batch, spans, and output fenceposts twice."""
    return scores.shape[0], span_offset(length_of(scores), length_of(scores) + 1), starts, starts


@custom_op("permalign::synchronous_inside", mutates_args=(), device_types="cpu")
def inside(
    scores: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, maximise: bool
) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.synchronous.inside`; returns the chart as well, for gradients and walks."""
    require_segments(scores, segments)
    log_sum = torch.zeros(scores.shape[0], dtype=torch.float64)
    chart = torch.zeros(chart_shape(scores, segments.shape[2]), dtype=torch.float64)
    arrays = layout_of_pairs(scores, lengths, target_lengths, segments.shape[2] - 1)
    for_each_sentence(
        loops.inside,
        scores.shape[0],
        as_array(scores),
        as_array(segments),
        *arrays,
        maximise,
        log_sum.numpy(),
        chart.numpy(),
    )
    return log_sum.to(scores.dtype), chart


@inside.register_fake
def _(
    scores: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, maximise: bool
) -> tuple[Tensor, Tensor]:
    shape = chart_shape(scores, segments.shape[2])
    return scores.new_empty(scores.shape[0]), scores.new_empty(shape, dtype=torch.float64)


@custom_op("permalign::synchronous_inside_backward", mutates_args=(), device_types="cpu")
def inside_backward(
    grad: Tensor, scores: Tensor, segments: Tensor, chart: Tensor, lengths: Tensor, target_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The adjoints of the scores and of the segments."""
    require_segments(scores, segments)
    grad_scores, grad_segments = (
        torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in (scores, segments)
    )
    layout = layout_of_pairs(scores, lengths, target_lengths, segments.shape[2] - 1)
    arrays = (*(as_array(tensor) for tensor in (grad, scores, segments, chart)), *layout)
    for_each_sentence(
        loops.inside_backward,
        scores.shape[0],
        *arrays,
        grad_scores.numpy(),
        grad_segments.numpy(),
    )
    return grad_scores, grad_segments


@inside_backward.register_fake
def _(
    grad: Tensor, scores: Tensor, segments: Tensor, chart: Tensor, lengths: Tensor, target_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape), segments.new_empty(segments.shape)


register_backward(
    inside,
    inside_backward,
    lambda inputs, results: (*inputs[:2], results[1], *inputs[2:4]),  # scores, segments, chart, lengths
)


@custom_op("permalign::synchronous_walk", mutates_args=(), device_types="cpu")
def walk(
    scores: Tensor,
    segments: Tensor,
    chart: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `permalign.kernels.portable.synchronous.walk` (not differentiable)."""
    batch, max_length = scores.shape[0], length_of(scores)
    require_segments(scores, segments)
    if uniforms is None:
        uniforms = chart.new_full((1, batch, max_length - 1), -1.0)
    samples = uniforms.shape[0]
    require_shape("uniforms", uniforms, (samples, batch, max_length - 1), chart)
    nodes = torch.full((samples, batch, max_length - 1, 5), -1)
    orders = torch.arange(max_length).repeat(samples, batch, 1)
    sizes, widths = torch.zeros_like(orders), torch.zeros_like(orders)
    layout = layout_of_pairs(scores, lengths, target_lengths, chart.shape[2] - 1)
    arrays = (*(as_array(tensor) for tensor in (scores, segments, chart)), *layout)
    outputs = (nodes.numpy(), orders.numpy(), sizes.numpy(), widths.numpy())
    for_each_sentence(loops.walk, batch, *arrays, as_array(uniforms), *outputs)
    return nodes, torch.full_like(orders, -1), orders, sizes, widths


@walk.register_fake
def _(
    scores: Tensor,
    segments: Tensor,
    chart: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, max_length = scores.shape[0], length_of(scores)
    samples = 1 if uniforms is None else uniforms.shape[0]
    nodes = scores.new_empty((samples, batch, max_length - 1, 5), dtype=torch.int64)
    leaves, orders, sizes, widths = (nodes.new_empty(samples, batch, max_length) for _ in range(4))
    return nodes, leaves, orders, sizes, widths
