"""Scoring, inside and expected matrix against the paper's method; how they grow; what they need.

Everywhere one pass is forward and backward: the gradients of a random linear function of the expected matrix, plus
the log-partition, in the states and all four parameters of the scorer.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import processes
from benchmarks.measuring import MEGABYTE, Measurement, best_seconds, current_bytes, difference, peak_bytes
from benchmarks.slow_twin import slow_twin
from permalign import SeparablePermutation
from permalign.reorderers import SplitScorer

TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-3
GIGABYTE = 1e9


class Size(NamedTuple):
    """Of one batch: sentences, words in each, width of the states, hidden units of the scorer."""

    batch: int
    words: int
    width: int = 256
    hidden: int = 1024


class Pass(NamedTuple):
    """What one pass computes."""

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]


class Problem:
    """A batch of random states, a scorer, and the passes through them."""

    def __init__(self, size: Size, dropout: float = 0.0) -> None:
        torch.manual_seed(0)
        self.size = size
        self.scorer = SplitScorer(size.width, size.hidden, dropout)
        self.states = torch.randn(size.batch, size.words + 2, size.width, requires_grad=True)
        self.direction = torch.randn(size.batch, size.words, size.words)

    def fast(self) -> Pass:
        """The way of permalign."""
        scores = self.scorer(self.states)
        distribution = SeparablePermutation(scores)
        return self._finish(scores, distribution.log_partition(), distribution.expected_matrix())

    def slow(self) -> Pass:
        """The way of the paper."""
        return self._finish(*slow_twin(self.states, self.scorer.first, self.scorer.second))

    def scoring(self) -> tuple[Tensor, ...]:
        """The scorer alone."""
        return self._gradients(self.scorer(self.states).sum())

    def programs(self, scores: Tensor) -> tuple[Tensor, ...]:
        """The dynamic programs alone: inside and expected matrix of given scores."""
        matrix = SeparablePermutation(scores).expected_matrix()
        return torch.autograd.grad((matrix * self.direction).sum(), scores)

    def _finish(self, scores: Tensor, log_partition: Tensor, matrix: Tensor) -> Pass:
        loss = (matrix * self.direction).sum() + log_partition.sum()
        outputs = (scores.detach(), log_partition.detach(), matrix.detach())
        return Pass(outputs, self._gradients(loss))

    def _gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss, [self.states, *self.scorer.parameters()])


def against_the_paper(
    size: Size, target: float, slow_times: int = 2, fast_times: int = 20
) -> list[Measurement]:
    """How many times faster than the paper's method, with and without dropout; refuses to compare unequal outputs."""
    problem, dropped = Problem(size), Problem(size, dropout=0.1)
    kept: list[Pass] = []

    def slow() -> None:
        kept[:] = [problem.slow()]

    seconds = best_seconds(
        {
            "paper": (slow, slow_times),
            "permalign": (problem.fast, fast_times),
            "dropout": (dropped.fast, fast_times),
        }
    )
    details = {"paper seconds": seconds["paper"], **agreement(problem.fast(), kept[0])}
    label = f"n={size.words}, B={size.batch}"
    return [
        Measurement(
            f"paper-{size.words}",
            f"{label}: faster than the paper's method",
            seconds["paper"] / seconds["permalign"],
            "x",
            "at least",
            target,
            details | {"permalign seconds": seconds["permalign"]},
        ),
        Measurement(
            f"paper-{size.words}-dropout",
            f"{label}: the same, with dropout on our side",
            seconds["paper"] / seconds["dropout"],
            "x",
            details={"paper seconds": seconds["paper"], "permalign seconds": seconds["dropout"]},
        ),
    ]


def agreement(fast: Pass, slow: Pass) -> dict[str, float]:
    """How far two passes differ; more than the tolerance ends the run.

    Gradients in single precision differ where a hidden unit lies so close to zero that rounding decides on which side
    of the kink it falls: rarely, but then by its whole share. They are compared by their norms.
    """
    outputs = max(map(difference, fast.outputs, slow.outputs))
    gradients = max(
        (torch.linalg.vector_norm(one - other) / torch.linalg.vector_norm(other)).item()
        for one, other in zip(fast.gradients, slow.gradients, strict=True)
    )
    if not (outputs <= TOLERANCE and gradients <= GRADIENT_TOLERANCE):
        raise RuntimeError(
            f"the two methods differ by {outputs:.2g} in their outputs and by {gradients:.2g} in their gradients, "
            f"more than {TOLERANCE:g} and {GRADIENT_TOLERANCE:g}: there is nothing to compare. "
            "Run the tests of permalign.kernels."
        )
    return {"difference of outputs": outputs, "difference of gradients": gradients}


def growth(batch: int, words: int, times: int = 8, **widths: int) -> Measurement:
    """What doubling the length costs."""
    short, long = (Problem(Size(batch, length, **widths)) for length in (words, 2 * words))
    seconds = best_seconds({"short": (short.fast, times), "long": (long.fast, times)})
    return Measurement(
        "doubling",
        f"from n={words} to n={2 * words}, B={batch}: cost of doubling",
        seconds["long"] / seconds["short"],
        "x",
        "at most",
        17.0,
        {f"seconds at {words}": seconds["short"], f"seconds at {2 * words}": seconds["long"]},
    )


def share_of_programs(size: Size, times: int = 20) -> Measurement:
    """The time of the dynamic programs as a share of the scoring's."""
    problem = Problem(size)
    scores = problem.scorer(problem.states).detach().requires_grad_()
    seconds = best_seconds(
        {"scoring": (problem.scoring, times), "programs": (lambda: problem.programs(scores), times)}
    )
    return Measurement(
        "programs",
        f"n={size.words}, B={size.batch}: inside and expected matrix, share of scoring's time",
        seconds["programs"] / seconds["scoring"],
        "x",
        "at most",
        0.2,
        {"scoring seconds": seconds["scoring"], "programs seconds": seconds["programs"]},
    )


def memory_of_one_sentence(words: int, **widths: int) -> Measurement:
    """The peak memory of a fresh process that takes one sentence forward and backward."""
    answer = processes.run("reordering_memory", batch=1, words=words, **widths)
    return Measurement(
        "long",
        f"n={words}, one sentence: peak memory of the process",
        answer["peak bytes"] / GIGABYTE,
        "GB",
        "at most",
        4.0,
        {"seconds": answer["seconds"], "megabytes before": answer["bytes before"] / MEGABYTE},
    )


def measure_memory(**size: int) -> dict[str, float]:
    """Inside the fresh process: one pass, and the most memory the process has had."""
    problem, before = Problem(Size(**size)), current_bytes()
    seconds = best_seconds({"pass": (problem.fast, 1)})["pass"]
    return {"peak bytes": peak_bytes(), "bytes before": before, "seconds": seconds}
