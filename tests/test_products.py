"""Products by oneDNN equal torch's own, in values and in first and second derivatives, and for any layout."""

import pytest
import torch
from torch.nn import functional

from permalign import products
from permalign.products import Linear, linear, weight_gradient

needs_wide_vectors = pytest.mark.skipif(
    not products._has_wide_vectors(), reason="this processor has no AVX-512, or torch has no oneDNN"
)


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Let small products be computed by oneDNN, too."""
    monkeypatch.setattr(products, "LEAST_MULTIPLICATIONS", 1)


@pytest.fixture
def calls(monkeypatch):
    """The shapes of the features that oneDNN has multiplied."""
    shapes, plain = [], products._onednn

    def recorded(features, weight, bias):
        shapes.append(tuple(features.shape))
        return plain(features, weight, bias)

    monkeypatch.setattr(products, "_onednn", recorded)
    return shapes


LAYOUTS = {
    "contiguous": lambda rows, columns: torch.randn(rows, columns),
    "transposed": lambda rows, columns: torch.randn(columns, rows).T,
    "columns of a wider matrix": lambda rows, columns: torch.randn(rows, 2 * columns)[:, columns:],
    "every second column": lambda rows, columns: torch.randn(rows, 2 * columns)[:, ::2],
    "repeated row": lambda rows, columns: torch.randn(1, columns).expand(rows, -1),
    "repeated column": lambda rows, columns: torch.randn(rows, 1).expand(-1, columns),
}


@needs_wide_vectors
@pytest.mark.parametrize("of_weight", LAYOUTS)
@pytest.mark.parametrize("of_features", LAYOUTS)
def test_products_equal_those_of_torch_in_any_layout(calls, of_features, of_weight):
    features, weight = LAYOUTS[of_features](5, 7), LAYOUTS[of_weight](3, 7)
    bias = torch.tensor([0.5, -torch.inf, 2.0])
    expected = functional.linear(features.double(), weight.double(), bias.double())
    torch.testing.assert_close(linear(features, weight, bias).double(), expected, rtol=1e-5, atol=1e-5)
    assert calls == [(5, 7)]


@needs_wide_vectors
@pytest.mark.parametrize("rows", [(1,), (5,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_layers_have_the_same_values_and_gradients(calls, monkeypatch, rows, with_bias):
    layer = Linear(7, 3, bias=with_bias)
    features = torch.randn(*rows, 7, requires_grad=True)
    results = []
    for enabled in (True, False):
        with monkeypatch.context() as context:
            context.setattr(torch.backends.mkldnn, "enabled", enabled)
            value = layer(features)
            gradients = torch.autograd.grad(value.square().sum(), [features, *layer.parameters()])
            results.append((value, *gradients))
    assert len(calls) == 3  # the value and two gradients
    torch.testing.assert_close(*results)


@needs_wide_vectors
def test_products_can_be_differentiated_twice(monkeypatch):
    features, weight = torch.randn(5, 7, requires_grad=True), torch.randn(3, 7, requires_grad=True)
    results = []
    for enabled in (True, False):
        with monkeypatch.context() as context:
            context.setattr(torch.backends.mkldnn, "enabled", enabled)
            value = linear(features, weight).pow(3).sum()
            first = torch.autograd.grad(value, [features, weight], create_graph=True)
            norm = sum(gradient.square().sum() for gradient in first)
            results.append(torch.autograd.grad(norm, [features, weight]))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@needs_wide_vectors
def test_only_gradients_that_are_needed_are_computed(calls):
    linear(torch.randn(5, 7), torch.randn(3, 7, requires_grad=True)).sum().backward()
    assert len(calls) == 2  # the value, and the gradient of the weight


def test_weight_gradients():
    gradient, features = torch.randn(5, 3), torch.randn(5, 7)
    torch.testing.assert_close(weight_gradient(gradient, features), gradient.T @ features)


@needs_wide_vectors
@pytest.mark.parametrize(
    "operands",
    [
        pytest.param(lambda: (torch.randn(5, 7).double(), torch.randn(3, 7).double()), id="double precision"),
        pytest.param(lambda: (torch.randn(7), torch.randn(3, 7)), id="a vector"),
        pytest.param(lambda: (torch.randn(0, 7), torch.randn(3, 7)), id="no rows"),
    ],
)
def test_other_products_are_left_to_torch(calls, operands):
    features, weight = operands()
    assert torch.equal(linear(features, weight), functional.linear(features, weight))
    assert not calls


@needs_wide_vectors
def test_low_precision_and_compiled_programs_are_left_to_torch(calls):
    features, weight = torch.randn(5, 7), torch.randn(3, 7)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(features, weight).dtype == torch.bfloat16
    torch.export.export(Linear(7, 3), (features,))
    assert not calls


@needs_wide_vectors
def test_onednn_can_be_switched_off(calls, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    linear(torch.randn(5, 7), torch.randn(3, 7))
    assert not calls


@needs_wide_vectors
def test_small_products_are_left_to_torch(calls, monkeypatch):
    monkeypatch.undo()
    assert products._is_faster(torch.empty(2**11, 2**6), torch.empty(2**5, 2**6))
    assert not products._is_faster(torch.empty(2**11 - 1, 2**6), torch.empty(2**5, 2**6))
