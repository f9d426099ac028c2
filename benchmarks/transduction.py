"""Exact transduction: likelihoods summed over all orders and segmentations, with gradients, with and without labels.

Pruned sums are measured with scores like those of a trained model, and with random ones, where nothing can be pruned.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.measuring import Measurement, best_seconds, difference
from benchmarks.reordering import TOLERANCE
from permalign import SeparablePermutation, SynchronousPermutation, kernels
from permalign.kernels.layout import split_count, split_index
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


class PrunedProblem:
    """Scores in which each word of an output has a token that is likely to write it, in an order that is likely.

    They are as certain as those of a model for English to Japanese after five epochs: the relaxed likelihood is a few
    nats above the likelihood. Or else all scores are random.
    """

    def __init__(self, size: Size, certain: bool = True) -> None:
        torch.manual_seed(0)
        batch, length, target_length, longest, _ = size
        splits, words = torch.randn(batch, split_count(length), 2), torch.randn(batch, length, target_length)
        words = 2.5 * words - 7 if certain else -3 * words.abs()
        if certain:
            trees = [drawn[0] for drawn in SeparablePermutation(splits).sample_derivations(1)]
            writers = torch.randint(length, (batch, target_length)).sort(1).values  # by position
            for row, tree in enumerate(trees):
                for *fenceposts, rule in tree.tree.to_nodes():
                    splits[row, split_index(length, *map(torch.tensor, fenceposts)), rule] += 4
                tokens = torch.tensor(tree.order)[writers[row]]
                words[row, tokens, torch.arange(target_length)] = -torch.rand(target_length)
        segments = torch.full((batch, length, target_length + 1, longest + 1), -torch.inf)
        for start in range(target_length + 1):
            for stop in range(start, min(start + longest, target_length) + 1):
                # the probability to write another word, or to stop, is one half
                end_score = torch.tensor(0.5).log() * (stop - start + 1)
                segments[:, :, start, stop - start] = words[:, :, start:stop].sum(2) + end_score
        self.inputs = [splits.requires_grad_(), segments.requires_grad_()]

    def likelihood(self, threshold: float | None) -> tuple[Tensor, Tensor]:
        """Log-likelihoods ``(batch,)`` and bounds on what is lost; gradients are computed. None for the exact sum."""
        pair = SynchronousPermutation(*self.inputs, validate_args=False)
        if threshold is None:
            likelihood, lost = pair.log_likelihood(), torch.zeros(len(self.inputs[0]))
        else:
            likelihood, lost = pair.pruned_log_likelihood(threshold)
        torch.autograd.grad(likelihood.sum(), self.inputs)
        return likelihood.detach(), lost


def pruned_against_exact(
    size: Size, target: float | None, threshold: float = 1e-7, times: int = 5, certain: bool = True
) -> Measurement:
    """How much faster pruned sums are, and how many nats they lose; if their bounds are wrong, it is an error."""
    problem = PrunedProblem(size, certain)
    (pruned, bound), (exact, _) = problem.likelihood(threshold), problem.likelihood(None)
    lost = exact.double() - pruned.double()
    if not bool((lost <= bound + TOLERANCE * (1 + exact.abs())).all()):
        raise RuntimeError(
            f"pruned sums lose up to {float(lost.max()):.2g} nats, more than their bounds, so their time is not "
            "measured. Run the tests of permalign.structures."
        )
    seconds = best_seconds(
        {
            "exact": (lambda: problem.likelihood(None), times),
            "pruned": (lambda: problem.likelihood(threshold), 2 * times),
        }
    )
    numbers = f"n={size.length}, m={size.target_length}, B={size.batch}, L={size.max_segment_length}"
    return Measurement(
        f"transduction-pruned-{size.length}x{size.target_length}{'' if certain else '-random'}",
        f"exact transduction, {'certain' if certain else 'random'} scores, {numbers}: pruned sums against exact ones",
        seconds["exact"] / seconds["pruned"],
        "x",
        "none" if target is None else "at least",
        target,
        {
            **{f"{name} seconds": value for name, value in seconds.items()},
            "nats lost on average": max(0.0, float(lost.mean())),
            "most nats lost": max(0.0, float(lost.max())),
            "mean bound": float(bound.mean()),
        },
    )


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
