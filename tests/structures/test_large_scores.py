"""Log-probabilities in single precision stay right, and negative, however large scores are."""

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
