"""Labelled trees: the compiled inside sum and tagging likelihood against the portable ones, forward and backward."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.measuring import Measurement, best_seconds
from permalign import LabelledPermutation, kernels


class Size(NamedTuple):
    """Of one batch: sentences, words in each, labels."""

    batch: int
    words: int
    labels: int = 8


class Problem:
    """A random grammar over a batch, and the passes through it."""

    def __init__(self, size: Size) -> None:
        torch.manual_seed(0)
        batch, words, labels = size
        self.rules = (0.5 * torch.randn(2, labels, labels, labels)).requires_grad_()
        self.tokens = torch.randn(batch, words, labels, requires_grad=True)
        self.emissions = torch.randn(batch, words, words).log_softmax(-1).requires_grad_()

    def inside(self, path: kernels.Backend) -> list[Tensor]:
        """The log-partition and its gradients, by one of the two paths."""
        with kernels.backend(path):
            value = LabelledPermutation(self.rules, self.tokens).log_partition()
            return [value.detach(), *torch.autograd.grad(value.sum(), [self.rules, self.tokens])]

    def likelihood(self, path: kernels.Backend) -> list[Tensor]:
        """The likelihood of a tagging and its gradients, by one of the two paths."""
        with kernels.backend(path):
            value = LabelledPermutation(self.rules, self.tokens).log_likelihood(self.emissions)
            wanted = [self.rules, self.tokens, self.emissions]
            return [value.detach(), *torch.autograd.grad(value.sum(), wanted)]


def compiled_against_portable(
    size: Size, target: float | None = None, slow_times: int = 3, fast_times: int = 10
) -> list[Measurement]:
    """How many times faster compiled kernels are than plain torch; refuses to compare unequal gradients."""
    problem = Problem(size)
    label = f"labelled trees, n={size.words}, B={size.batch}, K={size.labels}"
    ways: dict[str, Callable[[kernels.Backend], list[Tensor]]] = {
        "inside": problem.inside,
        "tagging likelihood": problem.likelihood,
    }
    found = []
    for name, way in ways.items():
        for one, other in zip(way("compiled"), way("portable"), strict=True):
            if not torch.allclose(one, other, rtol=1e-3, atol=1e-3):
                raise RuntimeError(f"the two paths of the {name} differ: there is nothing to compare.")
        seconds = best_seconds(
            {
                "portable": (lambda way=way: way("portable"), slow_times),
                "compiled": (lambda way=way: way("compiled"), fast_times),
            }
        )
        found.append(
            Measurement(
                f"labelled-{name.split()[0]}-{size.words}",
                f"{label}: {name}, faster than plain torch",
                seconds["portable"] / seconds["compiled"],
                "x",
                "none" if target is None else "at least",
                target,
                {f"{path} seconds": value for path, value in seconds.items()},
            )
        )
    return found


def likelihood_seconds(size: Size, target: float, times: int = 5) -> Measurement:
    """How long the exact likelihood of a batch takes, with gradients."""
    problem = Problem(size)
    seconds = best_seconds({"compiled": (lambda: problem.likelihood("compiled"), times)})["compiled"]
    return Measurement(
        f"labelled-seconds-{size.words}",
        f"labelled trees, n={size.words}, B={size.batch}, K={size.labels}: exact likelihood with gradients",
        seconds,
        "s",
        "at most",
        target,
    )
