"""The weights with which cells write the next token, and the recurrence behind them, against loops."""

import pytest
import torch
from tests.structures.contract import seeded

from permalign import kernels
from permalign.kernels.numerics import LOG_ZERO
from permalign.kernels.portable.monotone import log_recurrence


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


LENGTHS = torch.tensor([5, 1, 2, 4])


def random_prefixes(scale, dtype=torch.float64):
    """Cells, prefixes, an output layer and log-weights of arrival, with noise at padding."""
    shapes = (4, 5, 6), (4, 3, 6), (6,), (1,), (4, 3, 5)
    return [scale * torch.randn(shape, dtype=dtype, generator=seeded(len(shape))) for shape in shapes]


def paths(cells, steps, weight, bias, arrived, length):
    """The weights of one prefix, summed over the cells at which it may have arrived."""
    odds = [float((cells[i] + steps).relu() @ weight + bias) for i in range(length)]
    emit = [torch.tensor(odds[i]).double().sigmoid() for i in range(length - 1)] + [torch.ones(())]
    weights = []
    for cell in range(length):
        total = torch.zeros(())
        for start in range(cell + 1):
            passed = [1 - emit[before] for before in range(start, cell)]
            total = total + arrived[start].exp() * torch.stack([*passed, emit[cell]]).prod()
        weights.append(total.log())
    return torch.stack(weights)


@pytest.mark.parametrize("backend", ["compiled", "portable"])
def test_writing_weights_are_sums_over_paths(backend):
    cells, steps, weight, bias, arrived = random_prefixes(1.0)
    with kernels.backend(backend):
        writing = kernels.writing_weights(cells, steps, weight, bias, arrived, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        for step in range(3):
            expected = paths(cells[row], steps[row, step], weight, bias, arrived[row, step], length)
            torch.testing.assert_close(writing[row, step, :length], expected)
        assert (writing[row, :, length:] <= LOG_ZERO / 2).all()


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_both_backends_give_the_same_writing_weights(scale, dtype):
    prefixes = random_prefixes(scale, dtype)
    prefixes[-1][0, :, 1:] = prefixes[-1][2, :, 0] = LOG_ZERO
    answers = []
    for name in ("compiled", "portable"):
        with kernels.backend(name):
            answers.append(kernels.writing_weights(*prefixes, LENGTHS))
    torch.testing.assert_close(*answers)


def test_writing_weights_need_tensors_that_fit():
    cells, steps, weight, bias, arrived = random_prefixes(1.0)
    with pytest.raises(ValueError, match=r"arrived has shape \(4, 3, 4\)"):
        kernels.writing_weights(cells, steps, weight, bias, arrived[..., :4], LENGTHS)
    with pytest.raises(ValueError, match="lengths must lie in"):
        kernels.writing_weights(cells, steps, weight, bias, arrived, LENGTHS + 1)
    with pytest.raises(ValueError, match="lengths has shape"):
        kernels.writing_weights(cells, steps, weight, bias, arrived, LENGTHS[:2])
