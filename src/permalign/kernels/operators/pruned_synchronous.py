"""Charts of outputs without improbable cells: loops of `permalign.kernels.compiled.pruned_synchronous` as operators."""

import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import pruned_synchronous as loops
from permalign.kernels.layout import LANES, length_of, span_count
from permalign.kernels.operators.arrays import as_array, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.operators.synchronous import layout_of_pairs, require_segments
from permalign.kernels.threads import for_each_sentence


def require_pruning(
    rules: Tensor, segments: Tensor, token_scales: Tensor, output_scales: Tensor, rows: Tensor
) -> None:
    """Require scales and kept cells of the shapes and the dtypes that the loops rely on."""
    batch, length, fenceposts = segments.shape[:3]
    require_shape("token_scales", token_scales, (batch, length), rules)
    require_shape("output_scales", output_scales, (batch, fenceposts), rules)
    require_shape("rows", rows, (batch, span_count(length), fenceposts, 2), rows.new_empty(0).int())


def require_tokens(rules: Tensor, segments: Tensor) -> None:
    """Require segments of tokens only, in double precision."""
    require_segments(rules, segments)
    require_shape("segments", segments, (rules.shape[0], length_of(rules), *segments.shape[2:]), rules)
    if rules.dtype != torch.float64:
        raise ValueError(f"rules and segments must be of torch.float64, but are of {rules.dtype}")


def chart_shape(segments: Tensor) -> tuple[int, int, int, int]:
    """The shape of a chart: batch, spans, and output fenceposts twice, the second time with room for the lanes."""
    batch, length, fenceposts = segments.shape[:3]
    return batch, span_count(length), fenceposts, fenceposts + LANES - 1


@custom_op("permalign::synchronous_bounds", mutates_args=(), device_types="cpu")
def bound_cells(
    marginals: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, threshold: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `permalign.kernels.portable.pruned_synchronous.bound_cells` (not differentiable)."""
    require_tokens(marginals, segments)
    batch, length, fenceposts = segments.shape[:3]
    token_scales, output_scales = segments.new_zeros(batch, length), segments.new_zeros(batch, fenceposts)
    rows = torch.zeros((batch, span_count(length), fenceposts, 2), dtype=torch.int32)
    pruned = segments.new_zeros(batch)
    layout = layout_of_pairs(marginals, lengths, target_lengths, fenceposts - 1)
    outputs = (token_scales, output_scales, rows, pruned)
    for_each_sentence(
        loops.bound_cells,
        batch,
        as_array(marginals),
        as_array(segments),
        *layout,
        threshold,
        *(tensor.numpy() for tensor in outputs),
    )
    return outputs


@bound_cells.register_fake
def _(
    marginals: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, threshold: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, length, fenceposts = segments.shape[:3]
    rows = segments.new_empty((batch, span_count(length), fenceposts, 2), dtype=torch.int32)
    scales = segments.new_empty(batch, length), segments.new_empty(batch, fenceposts)
    return *scales, rows, segments.new_empty(batch)


@custom_op("permalign::pruned_synchronous_inside", mutates_args=(), device_types="cpu")
def inside(
    rules: Tensor,
    segments: Tensor,
    token_scales: Tensor,
    output_scales: Tensor,
    rows: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.pruned_synchronous.inside`; returns the chart as well, for gradients."""
    require_tokens(rules, segments)
    require_pruning(rules, segments, token_scales, output_scales, rows)
    log_sum = torch.zeros(rules.shape[0], dtype=torch.float64)
    chart = torch.zeros(chart_shape(segments), dtype=torch.float64)
    for_each_sentence(
        loops.inside,
        rules.shape[0],
        *(as_array(tensor) for tensor in (rules, segments, token_scales, output_scales, rows)),
        *layout_of_pairs(rules, lengths, target_lengths, segments.shape[2] - 1),
        log_sum.numpy(),
        chart.numpy(),
    )
    return log_sum, chart


@inside.register_fake
def _(
    rules: Tensor,
    segments: Tensor,
    token_scales: Tensor,
    output_scales: Tensor,
    rows: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
) -> tuple[Tensor, Tensor]:
    return rules.new_empty(rules.shape[0]), rules.new_empty(chart_shape(segments))


@custom_op("permalign::pruned_synchronous_inside_backward", mutates_args=(), device_types="cpu")
def inside_backward(
    grad: Tensor,
    rules: Tensor,
    segments: Tensor,
    chart: Tensor,
    rows: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
) -> tuple[Tensor, Tensor]:
    """The adjoints of the rules and of the segments."""
    require_tokens(rules, segments)
    require_shape("chart", chart, chart_shape(segments), rules)
    grad_rules, grad_segments = (
        torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in (rules, segments)
    )
    for_each_sentence(
        loops.inside_backward,
        rules.shape[0],
        *(as_array(tensor) for tensor in (grad, rules, chart, rows)),
        *layout_of_pairs(rules, lengths, target_lengths, segments.shape[2] - 1),
        grad_rules.numpy(),
        grad_segments.numpy(),
    )
    return grad_rules, grad_segments


@inside_backward.register_fake
def _(
    grad: Tensor,
    rules: Tensor,
    segments: Tensor,
    chart: Tensor,
    rows: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
) -> tuple[Tensor, Tensor]:
    return rules.new_empty(rules.shape), segments.new_empty(segments.shape)


register_backward(
    inside,
    inside_backward,
    # rules, segments, chart, rows, lengths
    lambda inputs, results: (*inputs[:2], results[1], *inputs[4:]),
)
