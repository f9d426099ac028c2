"""Exact transduction: likelihoods over all orders and segmentations, with gradients, plain and with labels."""

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.measuring import Measurement, best_seconds, difference
from benchmarks.reordering import TOLERANCE
from permalign import SynchronousPermutation, kernels
from permalign.kernels.layout import split_count
from permalign.structures import LabelledSynchronousPermutation


class Size(NamedTuple):
    """Sentence pairs, source tokens, output words, words of the longest segment, labels (0 for none)."""

    batch: int
    tokens: int
    words: int
    longest: int = 4
    labels: int = 0


class Problem:
    """Random scores of splits and segments, and of a grammar if there are labels."""

    def __init__(self, size: Size) -> None:
        torch.manual_seed(0)
        splits = torch.randn(size.batch, split_count(size.tokens), 2)
        words = torch.randn(size.batch, size.tokens, size.words + 1, size.longest + 1)
        grammar = []
        if size.labels:
            shapes = (2, size.labels, size.labels, size.labels), (size.batch, size.tokens, size.labels)
            grammar = [torch.randn(shape) for shape in shapes]
        self.inputs = [tensor.requires_grad_() for tensor in (splits, -3 * words.abs(), *grammar)]

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
    """How long one takes; refuses to measure what the portable kernels do not confirm."""
    few = Problem(size._replace(batch=1))
    with kernels.backend("portable"):
        confirmed = few.likelihood()[0]
    differ = difference(few.likelihood()[0], confirmed)
    if not differ <= TOLERANCE:
        raise RuntimeError(
            f"the two likelihoods differ by {differ:.2g}, more than {TOLERANCE:g}: there is nothing to measure. "
            "Run the tests of permalign.kernels."
        )
    seconds = best_seconds({"likelihood": (Problem(size).likelihood, times)})["likelihood"]
    labels = f", K={size.labels}" if size.labels else ""
    return Measurement(
        f"transduction-{size.tokens}x{size.words}{'-labelled' if size.labels else ''}",
        f"B={size.batch}, n={size.tokens}, m={size.words}, L={size.longest}{labels}: exact transduction with gradients",
        1e3 * seconds,
        "ms",
        "at most",
        1e3 * target,
        {"difference": differ},
    )
