"""The compiled sums of products of exponentials, against plain torch; and the exponential that they are made of."""

import math

import pytest
import torch
from tests.structures.contract import seeded

from permalign import kernels
from permalign.kernels.compiled.additive import BLOCK

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def random_logits(rows, vocab_size, dtype, scale=5.0):
    generator = seeded(rows)
    logits = scale * torch.randn(2, rows, vocab_size, dtype=dtype, generator=generator)
    forbidden = torch.rand(logits.shape, generator=generator) < 0.2
    forbidden[:, :, 0] = False  # every row allows at least one token
    return logits.masked_fill(forbidden, -torch.inf)


def on_backend(name, *logits):
    """The results, and the exponentials that overwrite the logits."""
    overwritten = [tensor.clone() for tensor in logits]
    with kernels.backend(name):
        return *kernels.exponential_products(*overwritten), *overwritten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("vocab_size", [1, 7, BLOCK, 2 * BLOCK + 5])
@pytest.mark.parametrize(("cells", "steps"), [(1, 1), (2, 4), (3, 5), (8, 2), (5, 11)])
def test_both_backends_agree(cells, steps, vocab_size, dtype):
    logits = [random_logits(rows, vocab_size, dtype) for rows in (cells, steps)]
    compiled, portable = (on_backend(name, *logits) for name in ("compiled", "portable"))
    torch.testing.assert_close(compiled, portable, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials_of_all_sizes(dtype):
    """Errors are relative to each exponential, however small it is; those that would be subnormal are zero."""
    least = math.log(torch.finfo(dtype).tiny)
    logits = torch.linspace(least + 1e-3, 0, 100_000, dtype=dtype).view(1, 1, -1)
    scaled = on_backend("compiled", logits, torch.zeros_like(logits))[3]
    relative_error = (scaled.double() / logits.double().exp() - 1).abs()
    assert (relative_error <= torch.finfo(dtype).eps * logits.double().abs().clamp(min=2)).all()
    assert scaled[0, 0, -1] == 1
    beyond = torch.tensor([[[0.0, 1.01 * least, 1e3 * least, -torch.inf]]], dtype=dtype)
    assert on_backend("compiled", beyond, torch.zeros_like(beyond))[3].tolist() == [[[1, 0, 0, 0]]]


def test_a_score_that_is_no_number_is_not_hidden():
    logits = torch.tensor([[[0.0, torch.nan, -1.0]]])
    assert on_backend("compiled", logits, torch.zeros(1, 2, 3))[0].isnan().all()


def test_logits_that_cannot_be_overwritten_are_refused():
    logits = torch.zeros(1, 4, 3).transpose(1, 2)
    with kernels.backend("compiled"), pytest.raises(ValueError, match="must be contiguous"):
        kernels.exponential_products(logits, torch.zeros(1, 2, 4))


def test_different_vocabularies_are_refused():
    with kernels.backend("compiled"), pytest.raises(ValueError, match="steps has shape"):
        kernels.exponential_products(torch.zeros(1, 2, 4), torch.zeros(1, 2, 3))
