"""Sentences too long to enumerate: against recurrences that are written down once more, and in single precision."""

import numpy as np
import pytest
import torch

from permalign import MonotoneAlignment, SeparablePermutation, SynchronousPermutation
from permalign.structures.brute_force import packed_splits


class Recurrences:
    """The sums of a sentence by plain recurrences over its spans ``(start, end)``, in double precision.

    Args:
        scores: the scores of all splits, ``(splits, 2)``: straight and inverted.
    """

    def __init__(self, scores: np.ndarray) -> None:
        self.length = next(n for n in range(1, 100) if (n**3 - n) // 6 == len(scores))
        self.scores = {split: scores[place] for split, place in packed_splits(self.length).items()}
        self.log_weight = {(start, start + 1): 0.0 for start in range(self.length)}
        for start, end in self.spans():
            self.log_weight[start, end] = np.logaddexp.reduce(
                [
                    self.log_rule(start, middle, end, rule)
                    for middle in range(start + 1, end)
                    for rule in (0, 1)
                ]
            )

    def spans(self):
        """The spans of two words and more, short ones first."""
        for width in range(2, self.length + 1):
            for start in range(self.length - width + 1):
                yield start, start + width

    def log_rule(self, start, middle, end, rule):
        below = self.log_weight[start, middle] + self.log_weight[middle, end]
        return self.scores[start, middle, end][rule] + below

    def expected_matrix(self):
        """The expected matrix of every span, from those of its parts; the rows are positions."""
        of_span = {(start, start + 1): np.ones((1, 1)) for start in range(self.length)}
        for start, end in self.spans():
            mean = np.zeros((end - start, end - start))
            for middle in range(start + 1, end):
                left, right = of_span[start, middle], of_span[middle, end]
                for rule in (0, 1):
                    weight = np.exp(self.log_rule(start, middle, end, rule) - self.log_weight[start, end])
                    first = len(right) if rule else 0  # the position of the left part
                    second = 0 if rule else len(left)
                    mean[first : first + len(left), : len(left)] += weight * left
                    mean[second : second + len(right), len(left) :] += weight * right
            of_span[start, end] = mean
        return of_span[0, self.length]

    def log_likelihood(self, emissions):
        """The log of the summed probability of all orders, each with the emissions of its words."""
        log_weight = {
            (start, start + 1, position): emissions[start, position]
            for start in range(self.length)
            for position in range(self.length)
        }
        for start, end in self.spans():
            for position in range(self.length - (end - start) + 1):
                terms = []
                for middle in range(start + 1, end):
                    straight, inverted = self.scores[start, middle, end]
                    left, right = middle - start, end - middle
                    terms += [
                        straight
                        + log_weight[start, middle, position]
                        + log_weight[middle, end, position + left],
                        inverted
                        + log_weight[middle, end, position]
                        + log_weight[start, middle, position + right],
                    ]
                log_weight[start, end, position] = np.logaddexp.reduce(terms)
        return log_weight[0, self.length, 0] - self.log_weight[0, self.length]


@pytest.mark.parametrize("length", [13, pytest.param(30, marks=pytest.mark.slow)])
def test_sums_are_those_of_plain_recurrences(length, backend):
    generator = torch.Generator().manual_seed(length)
    scores = 2 * torch.randn(1, (length**3 - length) // 6, 2, dtype=torch.float64, generator=generator)
    emissions = torch.randn(1, length, length, dtype=torch.float64, generator=generator).log_softmax(-1)
    orders, expected = SeparablePermutation(scores), Recurrences(scores[0].numpy())
    assert orders.log_partition().item() == pytest.approx(expected.log_weight[0, length], rel=1e-12)
    np.testing.assert_allclose(orders.expected_matrix()[0].numpy(), expected.expected_matrix(), atol=1e-12)
    found = orders.log_likelihood(emissions).item()
    assert found == pytest.approx(expected.log_likelihood(emissions[0].numpy()), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("length", [200, 500])
def test_gradients_of_long_sentences_are_finite_and_single_precision_drifts_little(length):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, (length**3 - length) // 6, 2, generator=generator)

    def run(dtype):
        leaves = scores.to(dtype).requires_grad_()
        log_partition = SeparablePermutation(leaves).log_partition()
        (gradient,) = torch.autograd.grad(log_partition.sum(), leaves)
        return log_partition.item(), gradient

    single, gradient = run(torch.float32)
    double, expected = run(torch.float64)
    assert gradient.isfinite().all()
    assert single == pytest.approx(double, rel=1e-6)
    assert gradient.sum().item() == pytest.approx(length - 1, rel=1e-4)  # a tree has so many splits
    torch.testing.assert_close(gradient.double(), expected, rtol=0.01, atol=1e-5)


@pytest.mark.slow
def test_taggings_and_orders_of_a_long_sentence():
    length, generator = 120, torch.Generator().manual_seed(0)
    scores = torch.randn(1, (length**3 - length) // 6, 2, generator=generator)
    emissions = torch.randn(1, length, length, generator=generator).log_softmax(-1)
    single = SeparablePermutation(scores.requires_grad_())
    likelihood = single.log_likelihood(emissions)
    (gradient,) = torch.autograd.grad(likelihood.sum(), scores)
    assert gradient.isfinite().all()
    double = SeparablePermutation(scores.detach().double())
    assert likelihood.item() == pytest.approx(double.log_likelihood(emissions.double()).item(), rel=1e-5)
    matrix = single.expected_matrix().detach()
    torch.testing.assert_close(matrix.sum(1), torch.ones(1, length), rtol=0, atol=1e-4)
    torch.testing.assert_close(matrix.sum(2), torch.ones(1, length), rtol=0, atol=1e-4)
    torch.testing.assert_close(matrix.double(), double.expected_matrix(), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_alignments_of_long_pairs():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 400, 300, generator=generator)
    words = torch.randn(2, 400, 300, generator=generator).sub(5).requires_grad_()
    likelihood = MonotoneAlignment(logits, words).log_likelihood()
    (gradient,) = torch.autograd.grad(likelihood.sum(), words)
    assert gradient.isfinite().all()
    torch.testing.assert_close(
        gradient.sum(1), torch.ones(2, 300), rtol=0, atol=1e-3
    )  # a word is written once
    double = MonotoneAlignment(logits.double(), words.detach().double()).log_likelihood()
    torch.testing.assert_close(likelihood.double(), double, rtol=1e-5, atol=0)


@pytest.mark.slow
def test_synchronous_charts_of_long_pairs():
    generator = torch.Generator().manual_seed(0)
    splits = torch.randn(1, (24**3 - 24) // 6, 2, generator=generator)
    segments = torch.randn(1, 24, 31, 4, generator=generator).sub(3).requires_grad_()
    likelihood = SynchronousPermutation(splits, segments).log_likelihood()
    (gradient,) = torch.autograd.grad(likelihood.sum(), segments)
    assert gradient.isfinite().all()
    assert gradient.sum().item() == pytest.approx(24, rel=1e-4)  # every word writes one segment
    double = SynchronousPermutation(splits.double(), segments.detach().double()).log_likelihood()
    torch.testing.assert_close(likelihood.double(), double, rtol=1e-5, atol=0)
