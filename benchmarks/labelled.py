"""Labelled trees: inside sum and tagging likelihood, forward and backward, by compiled and by portable kernels."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.measuring import Measurement, best_seconds
from permalign import LabelledPermutation, kernels
from permalign.structures import FactorisedLabelledPermutation


class Size(NamedTuple):
    """The number of sentences of a batch, the length of every sentence, and the number of labels."""

    batch: int
    length: int
    labels: int = 8


class Problem:
    """A random grammar over a batch, with rules as one tensor or as products, and passes forward and backward."""

    def __init__(self, size: Size, factorised: bool = False) -> None:
        torch.manual_seed(0)
        batch, length, labels = size
        self.family = FactorisedLabelledPermutation if factorised else LabelledPermutation
        shape = (2, 2 if factorised else labels, labels, labels)
        self.rules = (0.5 * torch.randn(shape)).requires_grad_()
        self.tokens = torch.randn(batch, length, labels, requires_grad=True)
        self.emissions = torch.randn(batch, length, length).log_softmax(-1).requires_grad_()

    def inside(self, backend: kernels.Backend) -> list[Tensor]:
        """The log-partition and its gradients."""
        with kernels.backend(backend):
            value = self.family(self.rules, self.tokens).log_partition()
            return [value.detach(), *torch.autograd.grad(value.sum(), [self.rules, self.tokens])]

    def likelihood(self, backend: kernels.Backend) -> list[Tensor]:
        """The likelihood of a tagging and its gradients."""
        with kernels.backend(backend):
            value = self.family(self.rules, self.tokens).log_likelihood(self.emissions)
            inputs = [self.rules, self.tokens, self.emissions]
            return [value.detach(), *torch.autograd.grad(value.sum(), inputs)]


def compiled_against_portable(
    size: Size, target: float | None = None, slow_times: int = 3, fast_times: int = 10
) -> list[Measurement]:
    """The speedup of compiled kernels over plain torch; results that differ are an error."""
    problem = Problem(size)
    label = f"labelled trees, n={size.length}, B={size.batch}, K={size.labels}"
    functions: dict[str, Callable[[kernels.Backend], list[Tensor]]] = {
        "inside sum": problem.inside,
        "tagging likelihood": problem.likelihood,
    }
    measurements = []
    for name, function in functions.items():
        for ours, theirs in zip(function("compiled"), function("portable"), strict=True):
            if not torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3):
                raise RuntimeError(
                    f"compiled and portable kernels differ in the {name}, so their times cannot be compared. "
                    "Run the tests of permalign.kernels."
                )
        seconds = best_seconds(
            {
                "portable": (lambda function=function: function("portable"), slow_times),
                "compiled": (lambda function=function: function("compiled"), fast_times),
            }
        )
        measurements.append(
            Measurement(
                f"labelled-{name.split()[0]}-{size.length}",
                f"{label}: speedup of the {name} over plain torch",
                seconds["portable"] / seconds["compiled"],
                "x",
                "none" if target is None else "at least",
                target,
                {f"{backend} seconds": value for backend, value in seconds.items()},
            )
        )
    return measurements


def likelihood_seconds(size: Size, target: float, times: int = 5) -> Measurement:
    """How long the exact likelihood of a batch takes, with gradients."""
    problem = Problem(size)
    seconds = best_seconds({"compiled": (lambda: problem.likelihood("compiled"), times)})["compiled"]
    return Measurement(
        f"labelled-seconds-{size.length}",
        f"labelled trees, n={size.length}, B={size.batch}, K={size.labels}: exact likelihood with gradients",
        seconds,
        "s",
        "at most",
        target,
    )


def factorised_against_full(size: Size, full_labels: int = 8, times: int = 5) -> Measurement:
    """How long the likelihood takes with many labels and factorised rules, relative to few labels and all rules."""
    many, few = Problem(size, factorised=True), Problem(size._replace(labels=full_labels))
    seconds = best_seconds(
        {
            "factorised": (lambda: many.likelihood("compiled"), times),
            "full": (lambda: few.likelihood("compiled"), times),
        }
    )
    return Measurement(
        f"labelled-factorised-{size.length}",
        f"labelled trees, n={size.length}, B={size.batch}: time of the likelihood with {size.labels} labels and "
        f"factorised rules, relative to {full_labels} labels and all rules",
        seconds["factorised"] / seconds["full"],
        "x",
        details={f"{name} seconds": value for name, value in seconds.items()},
    )
