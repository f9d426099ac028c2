"""Scores of splits: the loops of `permalign.kernels.compiled.scoring` as torch operators."""

import numpy as np
import torch
from torch import Tensor
from torch.library import custom_op

from permalign.kernels.compiled import scoring as loops
from permalign.kernels.layout import split_count, split_offsets
from permalign.kernels.numerics import dropout_scale
from permalign.kernels.operators.arrays import as_array, checked_lengths, require_shape
from permalign.kernels.operators.autograd import register_backward
from permalign.kernels.threads import for_each_sentence


@custom_op("permalign::split_scores", mutates_args=(), device_types="cpu")
def split_scores(
    start: Tensor,
    middle: Tensor,
    end: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> Tensor:
    """See `permalign.kernels.portable.scoring.split_scores`."""
    batch, fenceposts, hidden = start.shape
    max_length = fenceposts - 1
    for name, tensor, shape in (
        ("middle", middle, (batch, fenceposts, hidden)),
        ("end", end, (batch, fenceposts, hidden)),
        ("weight", weight, (2, hidden)),
        ("bias", bias, (2,)),
    ):
        require_shape(name, tensor, shape, start)
    if lengths.shape != (batch,):
        raise ValueError(f"lengths has shape {tuple(lengths.shape)}, but must be {(batch,)}")
    scores = start.new_zeros(start.shape[0], split_count(max_length), 2)
    threshold, scale = dropout_scale(dropout)
    for_each_sentence(
        loops.split_scores,
        start.shape[0],
        *(as_array(x) for x in (start, middle, end, weight, bias)),
        checked_lengths(lengths, max_length),
        seed.item(),
        np.uint32(threshold),
        as_array(start).dtype.type(scale),
        split_offsets(max_length),
        scores.numpy(),
    )
    return scores


@split_scores.register_fake
def _(
    start: Tensor,
    middle: Tensor,
    end: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> Tensor:
    return start.new_empty(start.shape[0], split_count(start.shape[1] - 1), 2)


@custom_op("permalign::split_scores_backward", mutates_args=(), device_types="cpu")
def split_scores_backward(
    grad: Tensor,
    start: Tensor,
    middle: Tensor,
    end: Tensor,
    weight: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The adjoints of start, middle, end, weight and bias."""
    batch, max_length = start.shape[0], start.shape[1] - 1
    grad_start, grad_middle, grad_end = (
        torch.zeros_like(start, memory_format=torch.contiguous_format) for _ in range(3)
    )
    # those of weight and bias are kept for each sentence, so that threads do not write to the same memory
    grad_weight, grad_bias = weight.new_zeros(batch, *weight.shape), weight.new_zeros(batch, 2)
    threshold, scale = dropout_scale(dropout)
    for_each_sentence(
        loops.split_scores_backward,
        batch,
        *(as_array(x) for x in (grad, start, middle, end, weight)),
        checked_lengths(lengths, max_length),
        seed.item(),
        np.uint32(threshold),
        as_array(start).dtype.type(scale),
        split_offsets(max_length),
        *(x.numpy() for x in (grad_start, grad_middle, grad_end, grad_weight, grad_bias)),
    )
    return grad_start, grad_middle, grad_end, grad_weight.sum(0), grad_bias.sum(0)


@split_scores_backward.register_fake
def _(
    grad: Tensor,
    start: Tensor,
    middle: Tensor,
    end: Tensor,
    weight: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    grad_start, grad_middle, grad_end = (start.new_empty(start.shape) for _ in range(3))
    return grad_start, grad_middle, grad_end, weight.new_empty(weight.shape), weight.new_empty(2)


register_backward(
    split_scores,
    split_scores_backward,
    lambda inputs, _: (*inputs[:4], *inputs[5:]),  # all but the bias
)
