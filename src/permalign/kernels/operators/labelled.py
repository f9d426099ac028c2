"""Labelled trees: the loops of `permalign.kernels.compiled.labelled` as torch operators.

Sums are computed in double precision whatever the inputs' precision, and in probability space; so rules may differ by
no more than `permalign.kernels.numerics.RULE_RANGE`. `permalign.kernels` checks this before it calls an operator; the
operators check it again, because programs traced by ``torch.compile`` skip the first check.
"""

from math import floor
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op
from torch.nn.functional import pad

from permalign.kernels.compiled import labelled as loops
from permalign.kernels.compiled.vectors import LANES
from permalign.kernels.layout import (
    positioned_offset,
    positioned_offsets,
    span_offset,
    span_offsets,
    split_count,
    split_offsets,
)
from permalign.kernels.numerics import LOG_TWO, needs_logs
from permalign.kernels.operators.arrays import as_array, checked_lengths, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.threads import for_each_sentence


def by_label(rules: Tensor) -> Tensor:
    """Rules as ``(parent's label, pair)``, where a pair is (orientation, left label, right label)."""
    return rules.transpose(0, 1).flatten(1)


def padded(labels: int) -> int:
    """The number of labels, padded to what the loops compute at once."""
    return -(-labels // LANES) * LANES


def pad_labels(scores: Tensor, axes: int = 1) -> Tensor:
    """Scores in double precision, with labels of the padding, which have no weight, along the last axes."""
    room = padded(scores.shape[-1]) - scores.shape[-1]
    return pad(scores.detach().double(), (0, room) * axes, value=-torch.inf)


def powers_of_two(scores: Tensor) -> Any:
    """The exponential of every score as a factor in 1..2 and the exponent of a power of two, along a new last axis."""
    scores = scores.detach().double()
    exponents = (scores / LOG_TWO).floor()
    # where a score is so large that the difference is rounded, it is not allowed to leave its range
    factors = (scores - exponents * LOG_TWO).clamp(0.0, LOG_TWO).exp()
    return torch.stack([factors, exponents], -1).numpy()


def scaled(scores: Tensor) -> tuple[Tensor, float]:
    """Weights divided by a power of two that makes the largest of them 1 to 2, and its exponent."""
    exponent = floor(float(scores.amax()) / LOG_TWO)
    return (scores - exponent * LOG_TWO).exp(), float(exponent)


def scaled_rules(rules: Tensor, root: Tensor) -> tuple[Tensor, float]:
    """Weights of rules `by_label`, divided by a power of two, and its exponent."""
    if needs_logs(rules, root, torch.float64):
        raise ValueError(
            "rule_scores or root_scores differ by too much for compiled kernels, which compute in probability space. "
            "Use kernels.backend('portable'), which falls back on logarithms."
        )
    weights, exponent = scaled(pad_labels(rules, axes=3))
    return by_label(weights), exponent


def require_shapes(rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> None:
    """Require the shapes and dtypes that the loops rely on."""
    batch, max_length, labels = tokens.shape
    require_shape("rules", rules, (2, labels, labels, labels), tokens)
    require_shape("root", root, (labels,), tokens)
    require_shape("splits", splits, (batch, split_count(max_length), 2), tokens)
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, but must be {(batch,)}")


def zero_gradients(tokens: Tensor, splits: Tensor) -> list[Tensor]:
    """Zeroed gradients, in double precision and with padded labels, of rules, root, tokens and splits.

    Those of rules and root are kept for each sentence, so that threads do not write to the same memory.
    """
    batch, length, labels = *tokens.shape[:2], padded(tokens.shape[2])
    shapes = [
        (batch, 2 * labels**2 // LANES, labels, LANES),
        (batch, labels),
        (batch, length, labels),
        tuple(splits.shape),
    ]
    return [torch.zeros(shape, dtype=torch.float64) for shape in shapes]


def by_pair(weights: Tensor) -> Any:
    """Weights `by_label` as forward passes take them: ``(pair, parent's label)``."""
    return as_array(weights.T)


def by_block(weights: Tensor) -> Any:
    """Weights `by_label` as backward passes take them: ``(block of pairs, parent's label, pair in its block)``."""
    return as_array(weights.unflatten(1, (-1, LANES)).transpose(0, 1))


def gradients_in_shape(gradients: list[Tensor], weights: Tensor, rules: Tensor) -> list[Tensor]:
    """The gradients in the shapes and the precision of the inputs; those of rules and root summed over sentences.

    Args:
        gradients: those that the loops have written.
        weights: the `scaled_rules`, by which the loops have not multiplied the gradients of rules.
        rules: the scores of rules.
    """
    of_rules, of_root, of_tokens, *others = gradients
    room, labels = of_root.shape[1], rules.shape[1]
    of_rules = of_rules.sum(0).transpose(0, 1).flatten(1) * weights  # by label
    of_rules = of_rules.view(room, 2, room, room).transpose(0, 1)
    found = (
        of_rules[:, :labels, :labels, :labels],
        of_root.sum(0)[:labels],
        of_tokens[..., :labels],
        *others,
    )
    return [gradient.to(rules.dtype).contiguous() for gradient in found]


# --- Sums -----------------------------------------------------------------------------------------------------
# The log-partition is the likelihood of a tagging whose output has a single position, at which all words stand.


def _inside(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The log-sum of every sentence, and the chart's values and scales for the backward pass."""
    require_shapes(rules, root, tokens, splits, lengths)
    batch, max_length, _ = tokens.shape
    log_sum = torch.zeros(batch, dtype=torch.float64)
    values, scales = (
        torch.zeros(shape, dtype=torch.float64) for shape in _chart_shapes(tokens, emissions.shape[2])
    )
    scores = (as_array(pad_labels(root)), as_array(pad_labels(tokens)), powers_of_two(splits))
    weights, exponent = scaled_rules(rules, root)
    arrays = (by_pair(weights), exponent, *scores, as_array(emissions.double()))
    layout = _layout(lengths, max_length, emissions.shape[2])
    outputs = (tensor.numpy() for tensor in (log_sum, values, scales))
    for_each_sentence(loops.inside, batch, *arrays, *layout, *outputs)
    return log_sum.to(tokens.dtype), values, scales


def _layout(lengths: Tensor, max_length: int, positions: int) -> tuple[Any, ...]:
    """The lengths, and where each width of packed splits and of the chart begins."""
    chart_at = (positioned_offsets if positions > 1 else span_offsets)(max_length)
    return checked_lengths(lengths, max_length), split_offsets(max_length), chart_at


def _chart_shapes(tokens: Tensor, positions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the chart's values and scales."""
    batch, max_length, labels = tokens.shape
    cells = (positioned_offset if positions > 1 else span_offset)(max_length, max_length + 1)
    return (batch, cells, padded(labels)), (batch, cells)


def _inside_backward(
    grad: Tensor,
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
    positions: int,
) -> list[Tensor]:
    """The adjoints of rules, root, tokens, splits and emissions."""
    batch, max_length, _ = tokens.shape
    of_emissions = torch.zeros((batch, max_length, positions), dtype=torch.float64)
    gradients = [*zero_gradients(tokens, splits), of_emissions]
    weights, exponent = scaled_rules(rules, root)
    scores = (as_array(pad_labels(root)), powers_of_two(splits))
    arrays = (as_array(grad.double()), by_block(weights), exponent, *scores)
    chart, outputs = (values.numpy(), scales.numpy()), (tensor.numpy() for tensor in gradients)
    layout = _layout(lengths, max_length, positions)
    for_each_sentence(loops.inside_backward, batch, *arrays, *chart, *layout, *outputs)
    return gradients_in_shape(gradients, weights, rules)


@custom_op("permalign::labelled_inside", mutates_args=(), device_types="cpu")
def inside(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The log-partition, and the chart's values and scales for the backward pass."""
    return _inside(rules, root, tokens, splits, tokens.new_zeros(*tokens.shape[:2], 1), lengths)


@inside.register_fake
def _(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_chart(tokens, 1)


def _fake_chart(tokens: Tensor, positions: int) -> tuple[Tensor, Tensor, Tensor]:
    values, scales = (
        tokens.new_empty(shape, dtype=torch.float64) for shape in _chart_shapes(tokens, positions)
    )
    return tokens.new_empty(tokens.shape[0]), values, scales


@custom_op("permalign::labelled_inside_backward", mutates_args=(), device_types="cpu")
def inside_backward(
    grad: Tensor,
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The adjoints of rules, root, tokens and splits."""
    gradients = _inside_backward(grad, rules, root, tokens, splits, values, scales, lengths, positions=1)
    of_rules, of_root, of_tokens, of_splits, _ = gradients
    return of_rules, of_root, of_tokens, of_splits


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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_rules, of_root, of_tokens, of_splits = (x.new_empty(x.shape) for x in (rules, root, tokens, splits))
    return of_rules, of_root, of_tokens, of_splits


register_backward(
    inside,
    inside_backward,
    lambda inputs, results: (*inputs[:4], *results[1:], inputs[4]),  # scores, chart, lengths
)


@custom_op("permalign::labelled_tagging_inside", mutates_args=(), device_types="cpu")
def tagging_inside(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See `permalign.kernels.portable.labelled.tagging_inside`; returns the chart as well, for the backward pass."""
    batch, max_length, _ = tokens.shape
    require_shape("emissions", emissions, (batch, max_length, max_length), tokens)
    return _inside(rules, root, tokens, splits, emissions, lengths)


@tagging_inside.register_fake
def _(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_chart(tokens, tokens.shape[1])


@custom_op("permalign::labelled_tagging_inside_backward", mutates_args=(), device_types="cpu")
def tagging_inside_backward(
    grad: Tensor,
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The adjoints of rules, root, tokens, splits and emissions."""
    gradients = _inside_backward(
        grad, rules, root, tokens, splits, values, scales, lengths, positions=tokens.shape[1]
    )
    of_rules, of_root, of_tokens, of_splits, of_emissions = gradients
    return of_rules, of_root, of_tokens, of_splits, of_emissions


@tagging_inside_backward.register_fake
def _(
    grad: Tensor,
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    values: Tensor,
    scales: Tensor,
    lengths: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    of_rules, of_root, of_tokens, of_splits = (x.new_empty(x.shape) for x in (rules, root, tokens, splits))
    batch, max_length, _ = tokens.shape
    return of_rules, of_root, of_tokens, of_splits, tokens.new_empty(batch, max_length, max_length)


register_backward(
    tagging_inside,
    tagging_inside_backward,
    lambda inputs, results: (*inputs[:4], *results[1:], inputs[5]),  # scores, chart, lengths
)


# --- The best trees -------------------------------------------------------------------------------------------


@custom_op("permalign::labelled_best_inside", mutates_args=(), device_types="cpu")
def best_inside(rules: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.labelled.inside` with ``maximise`` (not differentiable)."""
    batch, max_length, labels = tokens.shape
    require_shapes(rules, tokens.new_zeros(labels), tokens, splits, lengths)
    chart = tokens.new_zeros(batch, max_length * (max_length + 1) // 2, labels)
    arrays = (as_array(by_label(rules)), as_array(tokens), as_array(splits))
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length), span_offsets(max_length))
    for_each_sentence(loops.best_inside, batch, *arrays, *layout, chart.numpy())
    return chart


@best_inside.register_fake
def _(rules: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> Tensor:
    batch, max_length, labels = tokens.shape
    return tokens.new_empty(batch, max_length * (max_length + 1) // 2, labels)
