"""The recurrence computed by doubling, against a loop."""

import pytest
import torch
from tests.structures.contract import seeded

from permalign.heads.log_recurrence import log_recurrence
from permalign.structures.log_space import LOG_ZERO


def loop(sources, decays):
    answers = [sources[..., 0]]
    for position in range(1, sources.shape[-1]):
        answers.append(torch.logaddexp(sources[..., position], answers[-1] + decays[..., position]))
    return torch.stack(answers, -1)


@pytest.mark.parametrize("positions", [1, 2, 3, 7, 8, 9, 200])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_against_a_loop(positions, scale):
    sources = scale * torch.randn(2, 3, positions, dtype=torch.float64, generator=seeded())
    decays = -scale * torch.rand(2, 3, positions, dtype=torch.float64, generator=seeded(1))
    torch.testing.assert_close(log_recurrence(sources, decays), loop(sources, decays), rtol=1e-12, atol=0)


def test_a_distant_source_is_not_lost_in_float32():
    """Differences of running sums would lose it: they reach 1e6, where float32 has no fractions."""
    sources = torch.full((300,), LOG_ZERO)
    decays = torch.full((300,), -1e4)
    sources[200], decays[201:] = 0.25, -0.001
    answer = log_recurrence(sources, decays)
    torch.testing.assert_close(answer[200:], 0.25 - 0.001 * torch.arange(100.0), rtol=1e-5, atol=1e-6)
    assert (answer[:200] < LOG_ZERO / 2).all()


def test_zero_weight_stays_zero():
    assert (log_recurrence(torch.full((9,), LOG_ZERO), torch.full((9,), LOG_ZERO)) <= LOG_ZERO).all()
