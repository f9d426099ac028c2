"""Exact transduction: likelihoods summed over all orders and segmentations, with gradients, with and without labels."""

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.measuring import Measurement, best_seconds, difference
from benchmarks.reordering import TOLERANCE
from permalign import SynchronousPermutation, kernels
from permalign.kernels.layout import split_count
from permalign.structures import LabelledSynchronousPermutation


class Size(NamedTuple):
    """The sizes of a batch of sentence pairs.

    Attributes:
        batch: the number of pairs.
        length: n, the length of every source.
        target_length: m, the length of every output.
        max_segment_length: L, the length of the longest segment.
        labels: K, the number of labels; 0 for trees without labels.
    """

    batch: int
    length: int
    target_length: int
    max_segment_length: int = 4
    labels: int = 0


class Problem:
    """Random scores of splits and segments, and of a grammar if there are labels."""

    def __init__(self, size: Size) -> None:
        torch.manual_seed(0)
        splits = torch.randn(size.batch, split_count(size.length), 2)
        shape = size.batch, size.length, size.target_length + 1, size.max_segment_length + 1
        segments = -3 * torch.randn(shape).abs()
        grammar = []
        if size.labels:
            shapes = (2, size.labels, size.labels, size.labels), (size.batch, size.length, size.labels)
            grammar = [torch.randn(shape) for shape in shapes]
        self.inputs = [tensor.requires_grad_() for tensor in (splits, segments, *grammar)]

    def likelihood(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Log-likelihoods ``(batch,)``, and the gradients of their sum."""
        splits, segments, *grammar = self.inputs
        pair = (
            LabelledSynchronousPermutation(*grammar, segments, splits, validate_args=False)
            if grammar
            else SynchronousPermutation(splits, segments, validate_args=False)
        )
        likelihood = pair.log_likelihood()
        return likelihood.detach(), torch.autograd.grad(likelihood.sum(), self.inputs)


def seconds_of_likelihood(size: Size, target: float, times: int = 10) -> Measurement:
    """The time of a batch of likelihoods; if the portable kernels give another likelihood, it is an error."""
    single = Problem(size._replace(batch=1))
    with kernels.backend("portable"):
        expected = single.likelihood()[0]
    deviation = difference(single.likelihood()[0], expected)
    if not deviation <= TOLERANCE:
        raise RuntimeError(
            f"compiled and portable kernels differ by {deviation:.2g} in the likelihood, more than {TOLERANCE:g}, so "
            "its time is not measured. Run the tests of permalign.kernels."
        )
    seconds = best_seconds({"likelihood": (Problem(size).likelihood, times)})["likelihood"]
    numbers = f"n={size.length}, m={size.target_length}, B={size.batch}, L={size.max_segment_length}"
    if size.labels:
        numbers += f", K={size.labels}"
    return Measurement(
        f"transduction-{size.length}x{size.target_length}{'-labelled' if size.labels else ''}",
        f"exact transduction, {numbers}: likelihood with gradients",
        1e3 * seconds,
        "ms",
        "at most",
        1e3 * target,
        {"difference": deviation},
    )
