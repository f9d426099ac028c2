"""Options drawn by uniform numbers: as often as they are probable, and never an impossible one."""

import pytest
import torch

from permalign.kernels.numerics import LOG_ZERO
from permalign.kernels.sampling import choose, gumbel_noise

ALMOST_ONE = {dtype: 1 - torch.finfo(dtype).eps / 2 for dtype in (torch.float32, torch.float64)}


def test_the_heaviest_option_is_the_first_of_equals():
    assert choose(torch.tensor([[0.0, 2.0, 1.0], [3.0, 3.0, 0.0]]), None).tolist() == [1, 0]


def test_options_are_drawn_by_inverting_the_distribution_function():
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log() + 7.0
    uniforms = torch.tensor([0.0, 0.19, 0.21, 0.69, 0.71, 0.99], dtype=torch.float64)
    assert choose(weights.repeat(6, 1), uniforms).tolist() == [0, 0, 1, 1, 2, 2]


def test_options_are_as_frequent_as_they_are_probable():
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.tensor([0.05, 0.0, 0.35, 0.6])
    drawn = choose(probabilities.log().repeat(20_000, 1), torch.rand(20_000, generator=generator))
    torch.testing.assert_close(drawn.bincount(minlength=4) / 20_000, probabilities, atol=0.012, rtol=0)


@pytest.mark.parametrize("impossible", [-torch.inf, LOG_ZERO, 3 * LOG_ZERO])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_impossible_options_are_never_drawn(impossible, dtype):
    """Not even by the largest number below one, for any total that rounding may give."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(5_000, 7, generator=generator, dtype=dtype)
    weights[:, ::3] = impossible
    for uniform in (0.0, 0.5, ALMOST_ONE[dtype]):
        drawn = choose(weights, torch.full((5_000,), uniform, dtype=dtype))
        assert (weights.gather(1, drawn[:, None]) > LOG_ZERO / 2).all()


def test_where_nothing_is_possible_the_heaviest_option_is_taken():
    weights = torch.tensor([[3.0, 1.0, 2.0], [2.0, 2.0, 1.0]]) * LOG_ZERO
    assert choose(weights, torch.tensor([0.9, 0.1])).tolist() == [1, 2]


def test_the_heaviest_option_with_gumbel_noise_is_a_sample():
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.tensor([0.1, 0.3, 0.6])
    weights = probabilities.log().repeat(20_000, 1)
    drawn = choose(weights + gumbel_noise(weights, generator), None)
    torch.testing.assert_close(drawn.bincount() / 20_000, probabilities, atol=0.012, rtol=0)
