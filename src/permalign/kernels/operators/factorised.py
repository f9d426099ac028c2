"""Labelled trees whose rules are products: the loops of `permalign.kernels.compiled.factorised` as torch operators.

``factors`` are ``(2, 2, K, K)``, indexed [orientation, side, label, child's label], where side 0 is the left child and
1 the right one. As in `permalign.kernels.operators.labelled`, sums are computed in double precision and in probability
space.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import factorised as loops
from permalign.kernels.compiled.vectors import LANES
from permalign.kernels.layout import (
    positioned_offset,
    span_count,
    span_offset,
    span_offsets,
    split_count,
    split_offsets,
)
from permalign.kernels.numerics import needs_logs
from permalign.kernels.operators.arrays import as_array, checked_lengths, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.operators.labelled import pad_labels, padded, powers_of_two, scaled
from permalign.kernels.threads import for_each_sentence


def require_shapes(factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> None:
    """Require the shapes and dtypes that the loops rely on."""
    batch, max_length, labels = tokens.shape
    require_shape("factors", factors, (2, 2, labels, labels), tokens)
    require_shape("root", root, (labels,), tokens)
    require_shape("splits", splits, (batch, split_count(max_length), 2), tokens)
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, but must be {(batch,)}")


def scaled_factors(factors: Tensor, root: Tensor) -> tuple[Tensor, float]:
    """Weights ``(2, 2, K, K)`` of left and of right children divided by powers of two; the sum of both exponents."""
    if needs_logs(factors.unbind(1), root, torch.float64):
        raise ValueError(
            "factors or root_scores differ by too much for compiled kernels, which compute in probability space. "
            "Use kernels.backend('portable'), which falls back on logarithms."
        )
    sides = [scaled(pad_labels(side, axes=2)) for side in factors.unbind(1)]
    return torch.stack([weights for weights, _ in sides], 1), sum(exponent for _, exponent in sides)


def panels(matrix: Tensor) -> Any:
    """A matrix ``(row, column)`` as ``(row // LANES, column, row % LANES)``."""
    return as_array(matrix.unflatten(0, (-1, LANES)).transpose(1, 2))


def _chart_shapes(tokens: Tensor, positions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the chart's values and scales."""
    batch, max_length, labels = tokens.shape
    cells = (positioned_offset if positions > 1 else span_offset)(max_length, max_length + 1) + LANES
    return (batch, cells, padded(labels)), (batch, cells)


def _inside(
    factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The log-sum of every sentence, and the chart's values and scales for the backward pass."""
    require_shapes(factors, root, tokens, splits, lengths)
    batch, max_length, _ = tokens.shape
    log_sum = torch.zeros(batch, dtype=torch.float64)
    values, scales = (
        torch.zeros(shape, dtype=torch.float64) for shape in _chart_shapes(tokens, emissions.shape[2])
    )
    weights, exponent = scaled_factors(factors, root)
    scores = (as_array(pad_labels(root)), as_array(pad_labels(tokens)), powers_of_two(splits))
    arrays = (panels(weights.flatten(0, 2)), exponent, *scores, as_array(emissions.double()))
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length))
    outputs = (tensor.numpy() for tensor in (log_sum, values, scales))
    for_each_sentence(loops.inside, batch, *arrays, *layout, *outputs)
    return log_sum.to(tokens.dtype), values, scales


def _inside_backward(
    grad: Tensor,
    factors: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
    positions: int,
) -> list[Tensor]:
    """The adjoints of factors, root, tokens, splits and emissions."""
    batch, max_length, labels = tokens.shape
    room = padded(labels)
    weights, exponent = scaled_factors(factors, root)
    matrix = weights.flatten(0, 2)
    own = [(batch, 4 * room // LANES, room, LANES), (batch, room), (batch, max_length, room)]
    shapes = [*own, tuple(splits.shape), (batch, max_length, positions)]
    gradients = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
    scores = (as_array(pad_labels(root)), powers_of_two(splits))
    arrays = (as_array(grad.double()), panels(matrix), panels(matrix.T), exponent, *scores)
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length))
    chart, outputs = (values.numpy(), scales.numpy()), (tensor.numpy() for tensor in gradients)
    for_each_sentence(loops.inside_backward, batch, *arrays, *chart, *layout, *outputs)
    of_factors, of_root, of_tokens, *others = gradients
    of_factors = of_factors.sum(0).transpose(1, 2).reshape(weights.shape) * weights
    found = (
        of_factors[..., :labels, :labels],
        of_root.sum(0)[:labels],
        of_tokens[..., :labels],
        *others,
    )
    return [gradient.to(tokens.dtype).contiguous() for gradient in found]


def _fake_chart(tokens: Tensor, positions: int) -> tuple[Tensor, Tensor, Tensor]:
    values, scales = (
        tokens.new_empty(shape, dtype=torch.float64) for shape in _chart_shapes(tokens, positions)
    )
    return tokens.new_empty(tokens.shape[0]), values, scales


@custom_op("permalign::factorised_inside", mutates_args=(), device_types="cpu")
def inside(
    factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The log-partition, and the chart's values and scales for the backward pass."""
    return _inside(factors, root, tokens, splits, tokens.new_zeros(*tokens.shape[:2], 1), lengths)


@inside.register_fake
def _(
    factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_chart(tokens, 1)


@custom_op("permalign::factorised_inside_backward", mutates_args=(), device_types="cpu")
def inside_backward(
    grad: Tensor,
    factors: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The adjoints of factors, root, tokens and splits."""
    gradients = _inside_backward(grad, factors, root, tokens, splits, values, scales, lengths, positions=1)
    of_factors, of_root, of_tokens, of_splits, _ = gradients
    return of_factors, of_root, of_tokens, of_splits


@inside_backward.register_fake
def _(
    grad: Tensor,
    factors: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_factors, of_root, of_tokens, of_splits = (
        x.new_empty(x.shape) for x in (factors, root, tokens, splits)
    )
    return of_factors, of_root, of_tokens, of_splits


register_backward(
    inside,
    inside_backward,
    lambda inputs, results: (*inputs[:4], *results[1:], inputs[4]),  # scores, chart, lengths
)


@custom_op("permalign::factorised_tagging_inside", mutates_args=(), device_types="cpu")
def tagging_inside(
    factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See `permalign.kernels.portable.factorised.tagging_inside`; returns the chart too, for the backward pass."""
    batch, max_length, _ = tokens.shape
    require_shape("emissions", emissions, (batch, max_length, max_length), tokens)
    return _inside(factors, root, tokens, splits, emissions, lengths)


@tagging_inside.register_fake
def _(
    factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_chart(tokens, tokens.shape[1])


@custom_op("permalign::factorised_tagging_inside_backward", mutates_args=(), device_types="cpu")
def tagging_inside_backward(
    grad: Tensor,
    factors: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The adjoints of factors, root, tokens, splits and emissions."""
    gradients = _inside_backward(
        grad, factors, root, tokens, splits, values, scales, lengths, positions=tokens.shape[1]
    )
    of_factors, of_root, of_tokens, of_splits, of_emissions = gradients
    return of_factors, of_root, of_tokens, of_splits, of_emissions


@tagging_inside_backward.register_fake
def _(
    grad: Tensor,
    factors: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    of_factors, of_root, of_tokens, of_splits = (
        x.new_empty(x.shape) for x in (factors, root, tokens, splits)
    )
    batch, max_length, _ = tokens.shape
    return of_factors, of_root, of_tokens, of_splits, tokens.new_empty(batch, max_length, max_length)


register_backward(
    tagging_inside,
    tagging_inside_backward,
    lambda inputs, results: (*inputs[:4], *results[1:], inputs[5]),  # scores, chart, lengths
)


@custom_op("permalign::factorised_best_inside", mutates_args=(), device_types="cpu")
def best_inside(factors: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.factorised.inside` with ``maximise`` (not differentiable)."""
    batch, max_length, labels = tokens.shape
    require_shapes(factors, tokens.new_zeros(labels), tokens, splits, lengths)
    chart = tokens.new_zeros(batch, span_count(max_length), labels)
    arrays = (as_array(factors.flatten(0, 2)), as_array(tokens), as_array(splits))
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length), span_offsets(max_length))
    for_each_sentence(loops.best_inside, batch, *arrays, *layout, chart.numpy())
    return chart


@best_inside.register_fake
def _(factors: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> Tensor:
    batch, max_length, labels = tokens.shape
    return tokens.new_empty(batch, span_count(max_length), labels)
