"""Labelled trees that write outputs: loops of `permalign.kernels.compiled.labelled_synchronous` as operators."""

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import labelled_synchronous as loops
from permalign.kernels.numerics import LOG_ZERO
from permalign.kernels.operators.arrays import as_array, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.operators.labelled import (
    by_block,
    by_label,
    by_pair,
    gradients_in_shape,
    pad_labels,
    padded,
    powers_of_two,
    require_shapes,
    scaled_rules,
    zero_gradients,
)
from permalign.kernels.operators.synchronous import chart_shape, layout_of_pairs, require_segments
from permalign.kernels.threads import for_each_sentence


@custom_op("permalign::labelled_synchronous_inside", mutates_args=(), device_types="cpu")
def inside(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `permalign.kernels.portable.labelled_synchronous.inside`; returns the chart too, for the backward pass."""
    _require_shapes(rules, root, tokens, splits, segments, lengths)
    log_sum = torch.zeros(tokens.shape[0], dtype=torch.float64)
    values, scales = (
        torch.zeros(shape, dtype=torch.float64)
        for shape in _shapes(tokens, splits, segments, padded(tokens.shape[2]))
    )
    scores = (as_array(pad_labels(root)), as_array(pad_labels(tokens)), powers_of_two(splits))
    weights, exponent = scaled_rules(rules, root)
    arrays = (by_pair(weights), exponent, *scores, as_array(segments.double()))
    layout = layout_of_pairs(splits, lengths, target_lengths, segments.shape[2] - 1)
    outputs = (tensor.numpy() for tensor in (log_sum, values, scales))
    for_each_sentence(loops.inside, tokens.shape[0], *arrays, *layout, *outputs)
    return log_sum.to(tokens.dtype), values, scales


def _require_shapes(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, segments: Tensor, lengths: Tensor
) -> None:
    """Refuse tensors that do not have the shapes and dtypes that the loops rely on."""
    require_shapes(rules, root, tokens, splits, lengths)
    require_segments(splits, segments)
    require_shape("segments", segments, (*tokens.shape[:2], *segments.shape[2:]), splits)  # no phrases


def _shapes(
    tokens: Tensor, splits: Tensor, segments: Tensor, labels: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the chart's values and scales."""
    batch, spans, fenceposts, _ = chart_shape(splits, segments.shape[2])
    cells = spans * fenceposts * fenceposts
    return (batch, cells, labels), (batch, cells)


@inside.register_fake
def _(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    values, scales = (
        tokens.new_empty(shape, dtype=torch.float64)
        for shape in _shapes(tokens, splits, segments, padded(tokens.shape[2]))
    )
    return tokens.new_empty(tokens.shape[0]), values, scales


@custom_op("permalign::labelled_synchronous_inside_backward", mutates_args=(), device_types="cpu")
def inside_backward(
    grad: Tensor,
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    fenceposts: int,
    max_segment_length: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The adjoints of rules, root, tokens, splits and segments."""
    batch, max_length, _ = tokens.shape
    of_segments = torch.zeros((batch, max_length, fenceposts, max_segment_length + 1), dtype=torch.float64)
    gradients = [*zero_gradients(tokens, splits), of_segments]
    weights, exponent = scaled_rules(rules, root)
    scores = (as_array(pad_labels(root)), powers_of_two(splits))
    arrays = (as_array(grad.double()), by_block(weights), exponent, *scores)
    layout = layout_of_pairs(splits, lengths, target_lengths, fenceposts - 1)
    chart, outputs = (values.numpy(), scales.numpy()), (tensor.numpy() for tensor in gradients)
    for_each_sentence(
        loops.inside_backward, batch, *arrays, *chart, fenceposts, max_segment_length, *layout, *outputs
    )
    of_rules, of_root, of_tokens, of_splits, of_segments = gradients_in_shape(gradients, weights, rules)
    return of_rules, of_root, of_tokens, of_splits, of_segments


@inside_backward.register_fake
def _(
    grad: Tensor,
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    fenceposts: int,
    max_segment_length: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    of_rules, of_root, of_tokens, of_splits = (x.new_empty(x.shape) for x in (rules, root, tokens, splits))
    shape = (tokens.shape[0], tokens.shape[1], fenceposts, max_segment_length + 1)
    return of_rules, of_root, of_tokens, of_splits, tokens.new_empty(shape)


def _backward_arguments(inputs: tuple[Any, ...], results: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """Scores, chart, lengths of both sides; output fenceposts and the length of the longest segment."""
    _, _, fenceposts, sizes = inputs[4].shape
    return (*inputs[:4], *results[1:], *inputs[5:], fenceposts, sizes - 1)


register_backward(inside, inside_backward, _backward_arguments)


# --- The best trees -------------------------------------------------------------------------------------------


@custom_op("permalign::labelled_synchronous_best_inside", mutates_args=(), device_types="cpu")
def best_inside(
    rules: Tensor, tokens: Tensor, splits: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor
) -> Tensor:
    """The log-weights ``(batch, cells, K)`` of the best trees, LOG_ZERO where there are none (not differentiable)."""
    _require_shapes(rules, tokens.new_zeros(tokens.shape[2]), tokens, splits, segments, lengths)
    shape = _shapes(tokens, splits, segments, tokens.shape[2])[0]
    chart = torch.full(shape, LOG_ZERO, dtype=torch.float64)
    arrays = tuple(as_array(part.double()) for part in (by_label(rules), tokens, splits, segments))
    layout = layout_of_pairs(splits, lengths, target_lengths, segments.shape[2] - 1)
    for_each_sentence(loops.best_inside, tokens.shape[0], *arrays, *layout, chart.numpy())
    return chart


@best_inside.register_fake
def _(
    rules: Tensor, tokens: Tensor, splits: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor
) -> Tensor:
    return tokens.new_empty(_shapes(tokens, splits, segments, tokens.shape[2])[0], dtype=torch.float64)
