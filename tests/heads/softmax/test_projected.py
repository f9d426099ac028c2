"""The normaliser computed from projections, against one from all logits."""

import pytest
import torch
from tests.structures.contract import seeded
from torch.nn.functional import linear

from permalign import kernels
from permalign.heads.softmax.projected import projected_log_normaliser

BATCH, CELLS, STEPS, VOCAB_SIZE = 2, 3, 4, 7


def inputs(scale=1.0, dtype=torch.float64):
    shapes = [(BATCH, CELLS, 2), (BATCH, STEPS, 3), (VOCAB_SIZE, 2), (VOCAB_SIZE, 3), (VOCAB_SIZE,)]
    generator = seeded(1)
    return [(scale * torch.randn(shape, generator=generator)).to(dtype) for shape in shapes]


def written_out(cells, steps, cell_weight, step_weight, bias):
    logits = (cells @ cell_weight.T)[:, :, None] + (steps @ step_weight.T)[:, None] + bias
    return logits.logsumexp(-1)


def values_and_gradients(function, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    value = function(*leaves)
    mixture = torch.randn(value.shape, dtype=torch.float64, generator=seeded(2))
    return value, *torch.autograd.grad((value * mixture).sum(), leaves)


@pytest.mark.parametrize("backend", ["compiled", "portable"])
@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float64, 1.0), (torch.float32, 1.0), (torch.float32, 20.0)]
)
def test_values_and_gradients(dtype, scale, forbidden, backend):
    """At the larger scale some pairs underflow in float32, and their neighbours do not."""
    tensors = inputs(scale, dtype)
    if forbidden:
        tensors[-1][[0, 2]] = -torch.inf
    if scale > 1:
        cell_logits, step_logits = tensors[0] @ tensors[2].T + tensors[4], tensors[1] @ tensors[3].T
        parts = [(logits - logits.amax(-1, keepdim=True)).exp() for logits in (cell_logits, step_logits)]
        small = parts[0] @ parts[1].transpose(1, 2) < 1e-30
        assert small.any()
        assert not small.all()
    with kernels.backend(backend):
        ours = values_and_gradients(projected_log_normaliser, tensors)
    theirs = values_and_gradients(written_out, [tensor.double() for tensor in tensors])
    assert {tensor.dtype for tensor in ours} == {dtype}
    tolerance = 1e-10 if dtype == torch.float64 else scale * 1e-5
    torch.testing.assert_close(ours, theirs, check_dtype=False, rtol=tolerance, atol=tolerance)


def test_gradcheck():
    leaves = tuple(tensor.requires_grad_() for tensor in inputs())
    assert torch.autograd.gradcheck(projected_log_normaliser, leaves)


def test_arguments_are_not_modified():
    tensors = inputs()
    copies = [tensor.clone() for tensor in tensors]
    projected_log_normaliser(*tensors)
    torch.testing.assert_close(tensors, copies, rtol=0, atol=0)


def test_a_second_backward_pass_gives_the_same_gradients():
    leaves = [tensor.requires_grad_() for tensor in inputs()]
    value = projected_log_normaliser(*leaves).sum()
    first = torch.autograd.grad(value, leaves, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(value, leaves), first, rtol=0, atol=0)


def test_with_mixed_precision_only_the_projections_are_rounded(monkeypatch):
    tensors = inputs(dtype=torch.float32)
    exact = projected_log_normaliser(*tensors)
    monkeypatch.setattr("permalign.heads.softmax.projected.low_precision_dtype", lambda: torch.bfloat16)
    cells, steps, cell_weight, step_weight, bias = (tensor.bfloat16() for tensor in tensors)
    of_cells, of_steps = linear(cells, cell_weight, bias).float(), linear(steps, step_weight).float()
    rounded = (of_cells[:, :, None] + of_steps[:, None]).logsumexp(-1)
    torch.testing.assert_close(projected_log_normaliser(*tensors), rounded)
    assert not torch.allclose(rounded, exact, rtol=0, atol=1e-4)
