"""Scoring, inside and expected matrix: against the paper's method, by backend and sentence length, and in memory.

A pass is always forward and backward: a random linear function of the expected matrix, plus the log-partition, and its
gradients with respect to the states and all four parameters of the scorer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks import processes
from benchmarks.measuring import MEGABYTE, Measurement, best_seconds, current_bytes, difference, peak_bytes
from benchmarks.slow_twin import slow_twin
from permalign import SeparablePermutation, kernels
from permalign.reorderers import SplitScorer

WITHOUT_WORK = {
    "alias",
    "as_strided",
    "broadcast_tensors",
    "chunk",
    "detach",
    "empty",
    "empty_like",
    "empty_strided",
    "expand",
    "expand_as",
    "flatten",
    "item",
    "lift_fresh",
    "narrow",
    "permute",
    "reshape",
    "resize_",
    "resolve_conj",
    "resolve_neg",
    "result_type",
    "select",
    "set_",
    "slice",
    "split",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unflatten",
    "unfold",
    "unsqueeze",
    "view",
    "view_as",
    "_has_compatible_shallow_copy_type",
    "_reshape_alias",
    "_unsafe_view",
}
"""Torch operations that only make a view, allocate memory or read a size."""
TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-3
GIGABYTE = 1e9


class Size(NamedTuple):
    """The sizes of a batch and of a scorer.

    Attributes:
        batch: the number of sentences.
        length: the length of every sentence.
        width: the size of the states.
        hidden: the number of hidden units of the scorer.
    """

    batch: int
    length: int
    width: int = 256
    hidden: int = 1024


class Pass(NamedTuple):
    """The results of one pass."""

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]


class Problem:
    """A batch of random states, a scorer, and the passes through them."""

    def __init__(self, size: Size, dropout: float = 0.0) -> None:
        torch.manual_seed(0)
        self.size = size
        self.scorer = SplitScorer(size.width, size.hidden, dropout)
        self.states = torch.randn(size.batch, size.length + 2, size.width, requires_grad=True)
        self.direction = torch.randn(size.batch, size.length, size.length)

    def fast(self) -> Pass:
        """One pass of our method."""
        scores = self.scorer(self.states)
        distribution = SeparablePermutation(scores)
        return self._finish(scores, distribution.log_partition(), distribution.expected_matrix())

    def slow(self) -> Pass:
        """One pass of the paper's method."""
        return self._finish(*slow_twin(self.states, self.scorer.first, self.scorer.second))

    def scoring(self) -> tuple[Tensor, ...]:
        """The scorer alone, with its gradients."""
        return self._gradients(self.scorer(self.states).sum())

    def dynamic_programs(self, scores: Tensor) -> tuple[Tensor, ...]:
        """The dynamic programs alone: inside and expected matrix of given scores, with gradients."""
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
    """The speedup over the paper's method, with and without dropout; outputs that differ are an error."""
    problem, with_dropout = Problem(size), Problem(size, dropout=0.1)
    last_slow_pass: list[Pass] = []

    def slow() -> None:
        last_slow_pass[:] = [problem.slow()]

    seconds = best_seconds(
        {
            "paper": (slow, slow_times),
            "permalign": (problem.fast, fast_times),
            "dropout": (with_dropout.fast, fast_times),
        }
    )
    details = {"paper seconds": seconds["paper"], **agreement(problem.fast(), last_slow_pass[0])}
    label = f"n={size.length}, B={size.batch}"
    return [
        Measurement(
            f"paper-{size.length}",
            f"{label}: speedup over the paper's method",
            seconds["paper"] / seconds["permalign"],
            "x",
            "at least",
            target,
            details | {"permalign seconds": seconds["permalign"]},
        ),
        Measurement(
            f"paper-{size.length}-dropout",
            f"{label}: speedup over the paper's method, ours with dropout",
            seconds["paper"] / seconds["dropout"],
            "x",
            details={"paper seconds": seconds["paper"], "permalign seconds": seconds["dropout"]},
        ),
    ]


def agreement(fast: Pass, slow: Pass) -> dict[str, float]:
    """By how much two passes differ; more than the tolerance is an error.

    Gradients in single precision differ where a hidden unit is so close to zero that rounding decides whether the ReLU
    passes it. This is rare, but then the gradients of that unit differ entirely; so gradients are compared by norms.
    """
    outputs = max(map(difference, fast.outputs, slow.outputs))
    gradients = max(
        (torch.linalg.vector_norm(ours - theirs) / torch.linalg.vector_norm(theirs)).item()
        for ours, theirs in zip(fast.gradients, slow.gradients, strict=True)
    )
    if not (outputs <= TOLERANCE and gradients <= GRADIENT_TOLERANCE):
        raise RuntimeError(
            f"the two methods differ by {outputs:.2g} in their outputs and by {gradients:.2g} in their gradients, "
            f"more than {TOLERANCE:g} and {GRADIENT_TOLERANCE:g}, so their times cannot be compared. "
            "Run the tests of permalign.kernels."
        )
    return {"difference of outputs": outputs, "difference of gradients": gradients}


def backends(size: Size, long: Size, launches: Size, times: int = 5) -> list[Measurement]:
    """The kernels for other devices than a CPU, measured on this CPU: time, operations and memory of a pass.

    Args:
        size: what is timed, against the compiled kernels.
        long: what takes memory, against kernels whose every operation autograd records.
        launches: what is counted, against the same.
        times: how often a pass is timed.
    """
    problem = Problem(size)

    def on(backend: kernels.Backend, problem: Problem) -> Pass:
        with kernels.backend(backend):
            return problem.fast()

    seconds = best_seconds(
        {
            "compiled": (lambda: on("compiled", problem), 4 * times),
            "vectorized": (lambda: on("vectorized", problem), times),
        }
    )
    counted = Problem(launches)
    counts = {name: operations(lambda name=name: on(name, counted)) for name in ("vectorized", "portable")}
    bytes_of = {
        name: processes.run("reordering_memory", backend=name, **long._asdict())
        for name in ("vectorized", "portable")
    }
    grown = {name: result["peak bytes"] - result["bytes before"] for name, result in bytes_of.items()}
    return [
        Measurement(
            "vectorized",
            f"n={size.length}, B={size.batch}: time of the kernels for other devices, relative to the compiled ones",
            seconds["vectorized"] / seconds["compiled"],
            "x",
            "at most",
            5.0,
            {
                **{f"{name} seconds": value for name, value in seconds.items()},
                **agreement(on("vectorized", problem), on("compiled", problem)),
            },
        ),
        Measurement(
            "vectorized-operations",
            f"n={launches.length}: operations of the kernels for other devices, relative to recorded ones",
            counts["vectorized"] / counts["portable"],
            "x",
            "at most",
            0.5,
            {f"{name} operations": count for name, count in counts.items()},
        ),
        Measurement(
            "vectorized-memory",
            f"n={long.length}, B={long.batch}: memory of the kernels for other devices, relative to recorded ones",
            grown["vectorized"] / grown["portable"],
            "x",
            "at most",
            0.5,
            {f"{name} megabytes": value / MEGABYTE for name, value in grown.items()},
        ),
    ]


def operations(call: Callable[[], object]) -> int:
    """The number of torch operations that compute something; each of them is at least one launch on a GPU."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()

    def computes(event: Any) -> bool:
        return event.name.startswith("aten::") and event.name.removeprefix("aten::") not in WITHOUT_WORK

    return sum(
        computes(event) and not any(computes(child) for child in event.cpu_children)
        for event in profiler.events()
    )


def growth(batch: int, length: int, times: int = 8, **widths: int) -> Measurement:
    """By which factor the time of a pass grows when the length doubles."""
    short, long = (Problem(Size(batch, n, **widths)) for n in (length, 2 * length))
    seconds = best_seconds({"short": (short.fast, times), "long": (long.fast, times)})
    return Measurement(
        "doubling",
        f"from n={length} to n={2 * length}, B={batch}: increase in time",
        seconds["long"] / seconds["short"],
        "x",
        "at most",
        17.0,
        {f"seconds at {length}": seconds["short"], f"seconds at {2 * length}": seconds["long"]},
    )


def dynamic_programs_against_scoring(size: Size, times: int = 20) -> Measurement:
    """The time of the dynamic programs, relative to that of scoring."""
    problem = Problem(size)
    scores = problem.scorer(problem.states).detach().requires_grad_()
    seconds = best_seconds(
        {
            "scoring": (problem.scoring, times),
            "dynamic programs": (lambda: problem.dynamic_programs(scores), times),
        }
    )
    return Measurement(
        "dynamic-programs",
        f"n={size.length}, B={size.batch}: time of inside and expected matrix, relative to scoring",
        seconds["dynamic programs"] / seconds["scoring"],
        "x",
        "at most",
        0.2,
        {f"{name} seconds": value for name, value in seconds.items()},
    )


def memory_of_one_sentence(length: int, **widths: int) -> Measurement:
    """The peak memory of a new process that does one pass over a single sentence."""
    result = processes.run("reordering_memory", batch=1, length=length, **widths)
    return Measurement(
        "long",
        f"n={length}, one sentence: peak memory of the process",
        result["peak bytes"] / GIGABYTE,
        "GB",
        "at most",
        1.5,
        {"seconds": result["seconds"], "megabytes before": result["bytes before"] / MEGABYTE},
    )


def measure_memory(backend: kernels.Backend = "auto", **size: int) -> dict[str, float]:
    """Do one pass, and measure the peak memory of the process (a job for a new process)."""
    problem, before = Problem(Size(**size)), current_bytes()
    with kernels.backend(backend):
        seconds = best_seconds({"pass": (problem.fast, 1)})["pass"]
    return {"peak bytes": peak_bytes(), "bytes before": before, "seconds": seconds}
