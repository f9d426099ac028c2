"""Separable permutations: the loops of `permalign.kernels.compiled.separable` as torch operators."""

import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import separable as loops
from permalign.kernels.layout import length_of, positioned_offset, positioned_offsets
from permalign.kernels.operators.arrays import as_array, layout_of, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.threads import for_each_sentence

# --- Inside ---------------------------------------------------------------------------------------------------


@custom_op("permalign::inside", mutates_args=(), device_types="cpu")
def inside(scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.separable.inside`."""
    return _inside(scores, lengths, maximise=False)


@custom_op("permalign::best_inside", mutates_args=(), device_types="cpu")
def best_inside(scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """`inside` with the maximum in place of the sum (not differentiable)."""
    return _inside(scores, lengths, maximise=True)


def _inside(scores: Tensor, lengths: Tensor, maximise: bool) -> tuple[Tensor, Tensor]:
    log_partition = scores.new_zeros(scores.shape[0])
    gamma = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    arrays = (as_array(scores), *layout_of(scores, lengths), maximise)
    for_each_sentence(loops.inside, scores.shape[0], *arrays, log_partition.numpy(), gamma.detach().numpy())
    return log_partition, gamma


def _inside_fake(scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), scores.new_empty(scores.shape)


inside.register_fake(_inside_fake)
best_inside.register_fake(_inside_fake)


@custom_op("permalign::inside_backward", mutates_args=(), device_types="cpu")
def inside_backward(grad_partition: Tensor, grad_gamma: Tensor, gamma: Tensor, lengths: Tensor) -> Tensor:
    """The adjoint of the scores."""
    grad_scores = torch.zeros_like(gamma, memory_format=torch.contiguous_format)
    arrays = (*(as_array(x) for x in (grad_partition, grad_gamma, gamma)), *layout_of(gamma, lengths))
    for_each_sentence(loops.inside_backward, gamma.shape[0], *arrays, grad_scores.numpy())
    return grad_scores


@inside_backward.register_fake
def _(grad_partition: Tensor, grad_gamma: Tensor, gamma: Tensor, lengths: Tensor) -> Tensor:
    return gamma.new_empty(gamma.shape)


register_backward(
    inside,
    inside_backward,
    lambda inputs, results: (results[1], inputs[1]),  # gamma, lengths
    differentiable_results=2,
)


# --- Rule probabilities ---------------------------------------------------------------------------------------


@custom_op("permalign::span_softmax", mutates_args=(), device_types="cpu")
def span_softmax(logits: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.separable.span_softmax`."""
    rules = torch.zeros_like(logits, memory_format=torch.contiguous_format)
    arrays = (as_array(logits), *layout_of(logits, lengths))
    for_each_sentence(loops.span_softmax, logits.shape[0], *arrays, rules.numpy())
    return rules


@custom_op("permalign::span_softmax_backward", mutates_args=(), device_types="cpu")
def span_softmax_backward(grad: Tensor, rules: Tensor, lengths: Tensor) -> Tensor:
    """The adjoint of the logits."""
    grad_logits = torch.zeros_like(rules, memory_format=torch.contiguous_format)
    arrays = (as_array(grad), as_array(rules), *layout_of(rules, lengths))
    for_each_sentence(loops.span_softmax_backward, rules.shape[0], *arrays, grad_logits.numpy())
    return grad_logits


@custom_op("permalign::span_one_hot", mutates_args=(), device_types="cpu")
def span_one_hot(weights: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.separable.span_one_hot` (not differentiable)."""
    one_hot = torch.zeros_like(weights, memory_format=torch.contiguous_format)
    arrays = (as_array(weights), *layout_of(weights, lengths))
    for_each_sentence(loops.span_one_hot, weights.shape[0], *arrays, one_hot.numpy())
    return one_hot


@custom_op("permalign::rule_marginals", mutates_args=(), device_types="cpu")
def rule_marginals(rules: Tensor, lengths: Tensor) -> Tensor:
    """See `permalign.kernels.portable.separable.rule_marginals`."""
    marginals = torch.zeros_like(rules, memory_format=torch.contiguous_format)
    arrays = (as_array(rules), *layout_of(rules, lengths))
    for_each_sentence(loops.rule_marginals, rules.shape[0], *arrays, marginals.numpy())
    return marginals


@custom_op("permalign::rule_marginals_backward", mutates_args=(), device_types="cpu")
def rule_marginals_backward(grad: Tensor, rules: Tensor, marginals: Tensor, lengths: Tensor) -> Tensor:
    """The adjoint of the rules."""
    grad_rules = torch.zeros_like(rules, memory_format=torch.contiguous_format)
    arrays = (*(as_array(x) for x in (grad, rules, marginals)), *layout_of(rules, lengths))
    for_each_sentence(loops.rule_marginals_backward, rules.shape[0], *arrays, grad_rules.numpy())
    return grad_rules


def _like_first(first: Tensor, *others: Tensor) -> Tensor:
    return first.new_empty(first.shape)


for _operator in (span_softmax, span_softmax_backward, span_one_hot, rule_marginals, rule_marginals_backward):
    _operator.register_fake(_like_first)


register_backward(span_softmax, span_softmax_backward, lambda inputs, rules: (rules, inputs[1]))
register_backward(
    rule_marginals, rule_marginals_backward, lambda inputs, marginals: (inputs[0], marginals, inputs[1])
)


# --- Charts with output positions -----------------------------------------------------------------------------


@custom_op("permalign::expected_matrix", mutates_args=(), device_types="cpu")
def expected_matrix(rules: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.separable.expected_matrix`; returns mu as well, for the backward pass."""
    batch, max_length = rules.shape[0], length_of(rules)
    matrix = rules.new_zeros(batch, max_length, max_length)
    chart = rules.new_zeros(batch, positioned_offset(max_length, max_length + 1))
    arrays = (as_array(rules), *layout_of(rules, lengths), positioned_offsets(max_length))
    for_each_sentence(loops.expected_matrix, batch, *arrays, matrix.numpy(), chart.numpy())
    return matrix, chart


@expected_matrix.register_fake
def _(rules: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    batch, max_length = rules.shape[0], length_of(rules)
    return rules.new_empty(batch, max_length, max_length), rules.new_empty(
        batch, positioned_offset(max_length, max_length + 1)
    )


@custom_op("permalign::expected_matrix_backward", mutates_args=(), device_types="cpu")
def expected_matrix_backward(grad: Tensor, rules: Tensor, chart: Tensor, lengths: Tensor) -> Tensor:
    """The adjoint of the rules."""
    max_length = length_of(rules)
    grad_rules = torch.zeros_like(rules, memory_format=torch.contiguous_format)
    arrays = (
        *(as_array(x) for x in (grad, rules, chart)),
        *layout_of(rules, lengths),
        positioned_offsets(max_length),
    )
    for_each_sentence(loops.expected_matrix_backward, rules.shape[0], *arrays, grad_rules.numpy())
    return grad_rules


@expected_matrix_backward.register_fake
def _(grad: Tensor, rules: Tensor, chart: Tensor, lengths: Tensor) -> Tensor:
    return rules.new_empty(rules.shape)


register_backward(
    expected_matrix,
    expected_matrix_backward,
    lambda inputs, results: (inputs[0], results[1], inputs[1]),  # rules, chart, lengths
)


@custom_op("permalign::tagging_inside", mutates_args=(), device_types="cpu")
def tagging_inside(scores: Tensor, emissions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.separable.tagging_inside`; returns C as well, for the backward pass."""
    batch, max_length = scores.shape[0], length_of(scores)
    require_shape("emissions", emissions, (batch, max_length, max_length), scores)
    log_sum = scores.new_zeros(batch)
    chart = scores.new_zeros(batch, positioned_offset(max_length, max_length + 1))
    arrays = (
        *(as_array(x) for x in (scores, emissions)),
        *layout_of(scores, lengths),
        positioned_offsets(max_length),
    )
    for_each_sentence(loops.tagging_inside, batch, *arrays, log_sum.numpy(), chart.numpy())
    return log_sum, chart


@tagging_inside.register_fake
def _(scores: Tensor, emissions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    batch, max_length = scores.shape[0], length_of(scores)
    return scores.new_empty(batch), scores.new_empty(batch, positioned_offset(max_length, max_length + 1))


@custom_op("permalign::tagging_inside_backward", mutates_args=(), device_types="cpu")
def tagging_inside_backward(
    grad: Tensor, scores: Tensor, chart: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """The adjoints of the scores and of the emissions."""
    batch, max_length = scores.shape[0], length_of(scores)
    grad_scores = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    grad_emissions = scores.new_zeros(batch, max_length, max_length)
    arrays = (
        *(as_array(x) for x in (grad, scores, chart)),
        *layout_of(scores, lengths),
        positioned_offsets(max_length),
    )
    for_each_sentence(
        loops.tagging_inside_backward, batch, *arrays, grad_scores.numpy(), grad_emissions.numpy()
    )
    return grad_scores, grad_emissions


@tagging_inside_backward.register_fake
def _(grad: Tensor, scores: Tensor, chart: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    max_length = length_of(scores)
    return scores.new_empty(scores.shape), scores.new_empty(scores.shape[0], max_length, max_length)


register_backward(
    tagging_inside,
    tagging_inside_backward,
    lambda inputs, results: (inputs[0], results[1], inputs[2]),  # scores, chart, lengths
)


# --- Walks from the root down ---------------------------------------------------------------------------------


@custom_op("permalign::walk", mutates_args=(), device_types="cpu")
def walk(
    weights: Tensor, lengths: Tensor, uniforms: Tensor | None, normal_form: bool
) -> tuple[Tensor, Tensor]:
    """See `permalign.kernels.portable.separable.walk` (not differentiable)."""
    batch, max_length = weights.shape[0], length_of(weights)
    if uniforms is None:
        uniforms = weights.new_full((1, batch, max_length - 1), -1.0)
    samples = uniforms.shape[0]
    require_shape("uniforms", uniforms, (samples, batch, max_length - 1), weights)
    nodes = torch.full((samples, batch, max_length - 1, 4), -1)
    orders = torch.arange(max_length).repeat(samples, batch, 1)
    arrays = (as_array(weights), *layout_of(weights, lengths), as_array(uniforms), normal_form)
    for_each_sentence(loops.walk, batch, *arrays, nodes.numpy(), orders.numpy())
    return nodes, orders


@walk.register_fake
def _(weights: Tensor, lengths: Tensor, uniforms: Tensor | None, normal_form: bool) -> tuple[Tensor, Tensor]:
    batch, max_length = weights.shape[0], length_of(weights)
    samples = 1 if uniforms is None else uniforms.shape[0]
    nodes = weights.new_empty((samples, batch, max_length - 1, 4), dtype=torch.int64)
    return nodes, weights.new_empty((samples, batch, max_length), dtype=torch.int64)
