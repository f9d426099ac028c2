"""Scores of splits: the loops of `permalign.kernels.compiled.scoring` as torch operators."""

import numpy as np
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import scoring as loops
from permalign.kernels.layout import split_count, split_offsets
from permalign.kernels.numerics import dropout_scale
from permalign.kernels.operators.arrays import as_array, checked_lengths, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.threads import for_each_sentence, num_parts


@custom_op("permalign::split_scores", mutates_args=(), device_types="cpu")
def split_scores(
    projections: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> Tensor:
    """See `permalign.kernels.portable.scoring.split_scores`."""
    batch, max_length, hidden = projections.shape[0], projections.shape[1] - 1, projections.shape[2]
    for name, tensor, shape in (
        ("projections", projections, (batch, max_length + 1, hidden, 2)),
        ("hidden_bias", hidden_bias, (hidden,)),
        ("weight", weight, (2, hidden)),
        ("bias", bias, (2,)),
    ):
        require_shape(name, tensor, shape, projections)
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, but must be {(batch,)}")
    scores = projections.new_zeros(batch, split_count(max_length), 2)
    threshold, scale = dropout_scale(dropout)
    parts = num_parts(max_length)
    for_each_sentence(
        loops.split_scores,
        batch * parts,
        parts,
        *(as_array(x) for x in (projections, hidden_bias, weight, bias)),
        checked_lengths(lengths, max_length),
        seed.item(),
        np.uint32(threshold),
        as_array(projections).dtype.type(scale),
        split_offsets(max_length),
        scores.numpy(),
    )
    return scores


@split_scores.register_fake
def _(
    projections: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> Tensor:
    return projections.new_empty(projections.shape[0], split_count(projections.shape[1] - 1), 2)


@custom_op("permalign::split_scores_backward", mutates_args=(), device_types="cpu")
def split_scores_backward(
    grad: Tensor,
    projections: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The adjoints of projections, hidden_bias, weight and bias."""
    batch, max_length = projections.shape[0], projections.shape[1] - 1
    parts = num_parts(max_length)
    # kept for each part of a sentence, so that threads do not write to the same memory
    grad_projections = projections.new_zeros(batch * parts, *projections.shape[1:])
    grad_hidden_bias, grad_weight, grad_bias = (
        projections.new_zeros(batch * parts, *shape) for shape in (hidden_bias.shape, weight.shape, (2,))
    )
    threshold, scale = dropout_scale(dropout)
    for_each_sentence(
        loops.split_scores_backward,
        batch * parts,
        parts,
        *(as_array(x) for x in (grad, projections, hidden_bias, weight)),
        checked_lengths(lengths, max_length),
        seed.item(),
        np.uint32(threshold),
        as_array(projections).dtype.type(scale),
        split_offsets(max_length),
        *(x.numpy() for x in (grad_projections, grad_hidden_bias, grad_weight, grad_bias)),
    )
    if parts > 1:
        grad_projections = grad_projections.unflatten(0, (batch, parts)).sum(1)
    return grad_projections, grad_hidden_bias.sum(0), grad_weight.sum(0), grad_bias.sum(0)


@split_scores_backward.register_fake
def _(
    grad: Tensor,
    projections: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_projections, of_hidden_bias, of_weight = (
        tensor.new_empty(tensor.shape) for tensor in (projections, hidden_bias, weight)
    )
    return of_projections, of_hidden_bias, of_weight, weight.new_empty(2)


register_backward(
    split_scores,
    split_scores_backward,
    lambda inputs, _: (*inputs[:3], *inputs[4:]),  # all but the bias
)
