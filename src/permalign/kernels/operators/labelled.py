"""Labelled trees: the loops of `permalign.kernels.compiled.labelled` as torch operators.

Sums are computed in double precision whatever the inputs' precision, and in probability space; so rules may differ by
no more than `permalign.kernels.numerics.RULE_RANGE`. `permalign.kernels` checks this before it calls an operator; the
operators check it again, because programs traced by ``torch.compile`` skip the first check.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import labelled as loops
from permalign.kernels.layout import positioned_offset, positioned_offsets, split_count, split_offsets
from permalign.kernels.numerics import needs_logs
from permalign.kernels.operators.arrays import as_array, checked_lengths, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.threads import for_each_sentence


def doubles(tensor: Tensor) -> Any:
    """The tensor in double precision, as an array."""
    return as_array(tensor.double())


def by_label(rules: Tensor) -> Tensor:
    """Rules as ``(parent's label, pair)``, where a pair is (orientation, left label, right label)."""
    return rules.transpose(0, 1).flatten(1)


def scaled_rules(rules: Tensor, root: Tensor) -> tuple[Any, float]:
    """Weights of rules divided by the largest of them, and the logarithm of the largest."""
    if needs_logs(rules, root, torch.float64):
        raise ValueError(
            "rule_scores or root_scores differ by too much for compiled kernels, which compute in probability space. "
            "Use kernels.backend('portable'), which falls back on logarithms."
        )
    scores = rules.detach().double()
    highest = float(scores.amax())
    return as_array(by_label((scores - highest).exp())), highest


def require_shapes(rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> None:
    """Require the shapes and dtypes that the loops rely on."""
    batch, max_length, labels = tokens.shape
    require_shape("rules", rules, (2, labels, labels, labels), tokens)
    require_shape("root", root, (labels,), tokens)
    require_shape("splits", splits, (batch, split_count(max_length), 2), tokens)
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, but must be {(batch,)}")


def zero_gradients(rules: Tensor, tokens: Tensor, splits: Tensor) -> list[Tensor]:
    """Zeroed gradients, in double precision, of rules, root, tokens and splits.

    Those of rules and root are kept for each sentence, so that threads do not write to the same memory.
    """
    batch, labels = tokens.shape[0], tokens.shape[2]
    shapes = [(batch, labels, 2 * labels * labels), (batch, labels), tuple(tokens.shape), tuple(splits.shape)]
    return [torch.zeros(shape, dtype=torch.float64) for shape in shapes]


def gradients_in_shape(gradients: list[Tensor], rules: Tensor) -> list[Tensor]:
    """The gradients in the shapes and the precision of the inputs; those of rules and root summed over sentences."""
    of_rules, of_root, *others = gradients
    labels = of_root.shape[1]
    of_rules = of_rules.sum(0).view(labels, 2, labels, labels).transpose(0, 1)
    return [gradient.to(rules.dtype).contiguous() for gradient in (of_rules, of_root.sum(0), *others)]


# --- Inside ---------------------------------------------------------------------------------------------------


@custom_op("permalign::labelled_inside", mutates_args=(), device_types="cpu")
def inside(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The log-partition, and the chart's values and scales for the backward pass."""
    require_shapes(rules, root, tokens, splits, lengths)
    batch, max_length, labels = tokens.shape
    log_partition = torch.zeros(batch, dtype=torch.float64)
    values, scales = _chart(batch, max_length * (max_length + 1) // 2, labels)
    arrays = (*scaled_rules(rules, root), *(doubles(tensor) for tensor in (root, tokens, splits)))
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length))
    outputs = (tensor.numpy() for tensor in (log_partition, values, scales))
    for_each_sentence(loops.inside, batch, *arrays, *layout, *outputs)
    return log_partition.to(tokens.dtype), values, scales


def _chart(batch: int, cells: int, labels: int) -> tuple[Tensor, Tensor]:
    values = torch.zeros((batch, cells, labels), dtype=torch.float64)
    return values, torch.zeros((batch, cells), dtype=torch.float64)


@inside.register_fake
def _(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    batch, max_length, labels = tokens.shape
    cells = max_length * (max_length + 1) // 2
    values = tokens.new_empty((batch, cells, labels), dtype=torch.float64)
    return tokens.new_empty(batch), values, tokens.new_empty((batch, cells), dtype=torch.float64)


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
    batch, max_length, _ = tokens.shape
    gradients = zero_gradients(rules, tokens, splits)
    arrays = (doubles(grad), *scaled_rules(rules, root), doubles(root), doubles(splits))
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length))
    chart, outputs = (values.numpy(), scales.numpy()), (tensor.numpy() for tensor in gradients)
    for_each_sentence(loops.inside_backward, batch, *arrays, *chart, *layout, *outputs)
    of_rules, of_root, of_tokens, of_splits = gradients_in_shape(gradients, rules)
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


@custom_op("permalign::labelled_best_inside", mutates_args=(), device_types="cpu")
def best_inside(rules: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.labelled.inside` with ``maximise`` (not differentiable)."""
    batch, max_length, labels = tokens.shape
    require_shapes(rules, tokens.new_zeros(labels), tokens, splits, lengths)
    chart = tokens.new_zeros(batch, max_length * (max_length + 1) // 2, labels)
    arrays = (as_array(by_label(rules)), as_array(tokens), as_array(splits))
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length))
    for_each_sentence(loops.best_inside, batch, *arrays, *layout, chart.numpy())
    return chart


@best_inside.register_fake
def _(rules: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor) -> Tensor:
    batch, max_length, labels = tokens.shape
    return tokens.new_empty(batch, max_length * (max_length + 1) // 2, labels)


# --- The tagging likelihood -----------------------------------------------------------------------------------


@custom_op("permalign::labelled_tagging_inside", mutates_args=(), device_types="cpu")
def tagging_inside(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See `permalign.kernels.portable.labelled.tagging_inside`; returns the chart as well, for the backward pass."""
    require_shapes(rules, root, tokens, splits, lengths)
    batch, max_length, labels = tokens.shape
    require_shape("emissions", emissions, (batch, max_length, max_length), tokens)
    log_sum = torch.zeros(batch, dtype=torch.float64)
    values, scales = _chart(batch, positioned_offset(max_length, max_length + 1), labels)
    arrays = (*scaled_rules(rules, root), *(doubles(tensor) for tensor in (root, tokens, splits, emissions)))
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length), positioned_offsets(max_length))
    outputs = (tensor.numpy() for tensor in (log_sum, values, scales))
    for_each_sentence(loops.tagging_inside, batch, *arrays, *layout, *outputs)
    return log_sum.to(tokens.dtype), values, scales


@tagging_inside.register_fake
def _(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    batch, max_length, labels = tokens.shape
    cells = positioned_offset(max_length, max_length + 1)
    values = tokens.new_empty((batch, cells, labels), dtype=torch.float64)
    return tokens.new_empty(batch), values, tokens.new_empty((batch, cells), dtype=torch.float64)


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
    batch, max_length, _ = tokens.shape
    gradients = [
        *zero_gradients(rules, tokens, splits),
        torch.zeros((batch, max_length, max_length), dtype=torch.float64),
    ]
    arrays = (doubles(grad), *scaled_rules(rules, root), doubles(root), doubles(splits))
    layout = (checked_lengths(lengths, max_length), split_offsets(max_length), positioned_offsets(max_length))
    chart, outputs = (values.numpy(), scales.numpy()), (tensor.numpy() for tensor in gradients)
    for_each_sentence(loops.tagging_inside_backward, batch, *arrays, *chart, *layout, *outputs)
    of_rules, of_root, of_tokens, of_splits, of_emissions = gradients_in_shape(gradients, rules)
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
