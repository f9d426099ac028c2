"""Log-probabilities in single precision stay right, and negative, for large scores; still larger ones are refused."""

import pytest
import torch

from permalign import LabelledPermutation, SeparablePermutation, SynchronousPermutation
from permalign.structures import LabelledSynchronousPermutation

N, WORDS, LABELS = 4, 3, 2


def make(kind, scale, dtype):
    """The log-likelihoods of some outputs, or the log-probabilities of orders, and the scores they depend on."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    splits = (draw(3, 10, 2) * scale).to(dtype).requires_grad_()
    emissions = draw(3, N, N).to(dtype).log_softmax(-1)
    segments = draw(3, N, WORDS + 1, 3).to(dtype).log_softmax(-1)
    rules, tokens = draw(2, LABELS, LABELS, LABELS).to(dtype), (draw(3, N, LABELS) * scale).to(dtype)
    if kind == "synchronous":
        return SynchronousPermutation(splits, segments).log_likelihood(), splits
    if kind == "labelled synchronous":
        return LabelledSynchronousPermutation(rules, tokens, segments, splits).log_likelihood(), splits
    orders = {
        "separable": lambda: SeparablePermutation(splits),
        "normal form": lambda: SeparablePermutation(splits, normal_form=True),
        "labelled": lambda: LabelledPermutation(rules, tokens, splits),
    }[kind]()
    return torch.stack(
        [orders.log_likelihood(emissions), orders.log_prob(torch.arange(N).repeat(3, 1))]
    ), splits


KINDS = ["separable", "normal form", "labelled", "synchronous", "labelled synchronous"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e10])
def test_single_precision_agrees_with_double(kind, scale, backend):
    found, _ = make(kind, scale, torch.float32)
    expected, _ = make(kind, scale, torch.float64)
    assert found.dtype == torch.float32
    assert (found <= 1e-3).all()
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=0.02)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e3, 1e10])
def test_gradients_stay_finite(kind, scale, backend):
    found, scores = make(kind, scale, torch.float32)
    (gradient,) = torch.autograd.grad(found.clamp(min=-1e20).sum(), scores)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_beside_which_others_are_lost_are_refused(kind, dtype):
    with pytest.raises(ValueError, match=r"at most 1e\+12.*forbid the others"):
        make(kind, 1e30, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("forbidden", [-1e10, -1e30, -1e38])
def test_what_is_forbidden_by_a_huge_negative_score_has_no_weight(dtype, forbidden, backend):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(4, 20, 2, generator=generator, dtype=dtype)  # of sentences of five words
    mask = torch.rand(4, 20, 2, generator=generator) < 0.15
    emissions = torch.randn(4, 5, 5, generator=generator, dtype=dtype).log_softmax(-1)

    def found(value):
        leaves = scores.clone().requires_grad_()
        orders = SeparablePermutation(leaves.masked_fill(mask, value))
        likelihood = orders.log_likelihood(emissions)
        (gradient,) = torch.autograd.grad(
            (orders.log_partition() + likelihood + orders.entropy()).sum(), leaves
        )
        return orders.log_partition(), likelihood, orders.entropy(), orders.expected_matrix(), gradient

    for result, expected in zip(found(forbidden), found(-400.0), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
