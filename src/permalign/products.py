"""Matrix products in single precision, by the library that is fast on the processor at hand.

torch multiplies matrices of float32 numbers with MKL, which uses vectors of 256 bits on processors that Intel did not
make. torch also contains oneDNN, whose kernels use all 512 bits of a processor with AVX-512. On such a processor (AMD's
Zen 5), products of hundreds of rows take half the time. torch itself calls oneDNN for float32 only in recurrent
networks, so `linear` calls it here. Both libraries compute the same products; they round them in different orders.

``torch.backends.mkldnn.enabled = False`` switches oneDNN off.
"""

from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.shapes import Float

LEAST_MULTIPLICATIONS = 2**22
"""The number of multiplications from which on oneDNN is faster; below, its calls cost more than they save."""


def linear(
    features: Float[Tensor, "*rows input_size"],
    weight: Float[Tensor, "output_size input_size"],
    bias: Float[Tensor, " output_size"] | None = None,
) -> Float[Tensor, "*rows output_size"]:
    """Compute ``features @ weight.T + bias``, as `torch.nn.functional.linear` does.

    >>> linear(torch.ones(2, 3), torch.eye(3), torch.tensor([0.0, 1.0, 2.0]))
    tensor([[1., 2., 3.],
            [1., 2., 3.]])
    """
    if not _is_faster(features, weight):
        return functional.linear(features, weight, bias)
    product = _Linear.apply(features.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    return cast(Tensor, product.unflatten(0, features.shape[:-1]))


def weight_gradient(
    gradient: Float[Tensor, "rows output_size"], features: Float[Tensor, "rows input_size"]
) -> Float[Tensor, "output_size input_size"]:
    """Compute ``gradient.T @ features``, the gradient of a weight.

    The transpose of this product is what is computed: oneDNN is twice as fast if the wider matrix comes second, and
    outputs, as vocabularies, are often wider than features.
    """
    return linear(features.T, gradient.T).T


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, input: Float[Tensor, "*rows in_features"]) -> Float[Tensor, "*rows out_features"]:
        """Compute ``input @ weight.T + bias``."""
        return linear(input, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    """The gradients are products as well, and can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(features, weight)
        return _onednn(_dense(features), _dense(weight), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        for_features, for_weight, for_bias = ctx.needs_input_grad
        return (
            linear(gradient, weight.T) if for_features else None,
            weight_gradient(gradient, features) if for_weight else None,
            gradient.sum(0) if for_bias else None,
        )


def _is_faster(features: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can compute a product, and is the faster of the two."""
    return (
        features.dtype == weight.dtype == torch.float32
        and features.device.type == weight.device.type == "cpu"
        and features.dim() > 1
        and features.numel() * weight.shape[0] >= LEAST_MULTIPLICATIONS
        and _has_wide_vectors()
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()  # a compiled program chooses by itself
    )


@cache
def _has_wide_vectors() -> bool:
    return (
        torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(
            torch.ops.mkldnn, "_linear_pointwise"
        )  # what torch.compile calls; absent from some builds
    )


def _dense(matrix: Tensor) -> Tensor:
    """The matrix, or a copy: if its rows or columns are not contiguous, oneDNN is a thousand times slower."""
    return matrix if matrix.is_contiguous() or matrix.T.is_contiguous() else matrix.contiguous()


def _onednn(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(features, weight, bias, "none", [], ""))
