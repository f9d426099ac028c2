"""The likelihood of SSNT's monotone alignments, with an additive softmax and with a full one.

Both begin with the same two projections onto the vocabulary, and end with the gradients with respect to states, weights
and emission logits. They differ only in how the probabilities of words are normalised: the full softmax computes a
logit for every source cell, output step and word.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks import processes
from benchmarks.measuring import MEGABYTE, Measurement, best_seconds, current_bytes, difference, peak_bytes
from benchmarks.reordering import TOLERANCE
from permalign import MonotoneAlignment, kernels
from permalign.heads import additive_word_log_probs

Softmax = Literal["additive", "full"]


class Size(NamedTuple):
    """The sizes of a batch of sentence pairs.

    Attributes:
        batch: the number of pairs.
        cells: I, the number of source cells.
        steps: J, the number of output steps.
        vocab_size: V, the size of the vocabulary.
        width: the size of the states.
    """

    batch: int = 32
    cells: int = 17
    steps: int = 18
    vocab_size: int = 8800
    width: int = 256


def full_word_log_probs(cell_logits: Tensor, step_logits: Tensor, targets: Tensor) -> Tensor:
    """The same as `additive_word_log_probs`, but with a softmax for every pair of a cell and a step."""
    log_probs = (cell_logits[:, :, None] + step_logits[:, None]).log_softmax(
        -1
    )  # (batch, cells, steps, vocab)
    indices = targets[:, None, :, None].expand(-1, log_probs.shape[1], -1, -1)
    return log_probs.gather(-1, indices).squeeze(-1)


class Problem:
    """Random states of cells and steps, and the parameters that project them onto words."""

    def __init__(self, size: Size) -> None:
        torch.manual_seed(0)
        self.cells = torch.randn(size.batch, size.cells, size.width)
        self.steps = torch.randn(size.batch, size.steps, size.width)
        self.cell_weight, self.step_weight = torch.randn(2, size.vocab_size, size.width) / size.width**0.5
        self.bias = torch.randn(size.vocab_size)
        self.emit_logits = torch.randn(size.batch, size.cells, size.steps)
        self.targets = torch.randint(size.vocab_size, (size.batch, size.steps))
        self.inputs = [
            tensor.requires_grad_()
            for tensor in (
                self.cells,
                self.steps,
                self.cell_weight,
                self.step_weight,
                self.bias,
                self.emit_logits,
            )
        ]

    def likelihood(self, softmax: Softmax) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Log-likelihoods ``(batch,)``, and the gradients of their sum."""
        log_probs_of = additive_word_log_probs if softmax == "additive" else full_word_log_probs
        cell_logits = self.cells @ self.cell_weight.T
        step_logits = self.steps @ self.step_weight.T + self.bias
        word_log_probs = log_probs_of(cell_logits, step_logits, self.targets)
        likelihood = MonotoneAlignment(self.emit_logits, word_log_probs).log_likelihood()
        return likelihood.detach(), torch.autograd.grad(likelihood.sum(), self.inputs)


def additive_against_full(size: Size, times: int = 5) -> list[Measurement]:
    """The speedup of the additive softmax, and its saving of memory; likelihoods that differ are an error."""
    problem = Problem(size)
    deviation = difference(problem.likelihood("additive")[0], problem.likelihood("full")[0])
    if not deviation <= TOLERANCE:
        raise RuntimeError(
            f"the two likelihoods differ by {deviation:.2g}, more than {TOLERANCE:g}, so times cannot be compared. "
            "Run the tests of permalign.heads."
        )
    seconds = best_seconds(
        {
            "additive": (lambda: problem.likelihood("additive"), 3 * times),
            "full": (lambda: problem.likelihood("full"), times),
        }
    )
    extra_bytes = {
        softmax: processes.run("alignment_memory", softmax=softmax, **size._asdict())["extra bytes"]
        for softmax in ("additive", "full")
    }
    label = f"SSNT, I={size.cells}, J={size.steps}, B={size.batch}, V={size.vocab_size:,}"
    return [
        Measurement(
            "ssnt-time",
            f"{label}: speedup of the additive softmax over the full one",
            seconds["full"] / seconds["additive"],
            "x",
            "at least",
            3.0,
            {
                "full seconds": seconds["full"],
                "additive seconds": seconds["additive"],
                "difference": deviation,
            },
        ),
        Measurement(
            "ssnt-memory",
            f"{label}: peak memory of the full softmax, relative to the additive one",
            extra_bytes["full"] / extra_bytes["additive"],
            "x",
            "at least",
            5.0,
            {f"{softmax} megabytes": count / MEGABYTE for softmax, count in extra_bytes.items()},
        ),
    ]


def compiled_against_portable(size: Size, times: int = 10) -> Measurement:
    """The speedup of the compiled sums of products of exponentials over plain torch; sums that differ are an error."""
    torch.manual_seed(0)
    logits = [torch.randn(size.batch, rows, size.vocab_size) for rows in (size.cells, size.steps)]

    terms: dict[kernels.Backend, list[Tensor]] = {
        "compiled": [tensor.clone() for tensor in logits],
        "portable": [tensor.clone() for tensor in logits],
    }

    def sums(backend: kernels.Backend) -> Tensor:
        """The sums; each call overwrites its terms by exponentials, which are logits as good as any."""
        with kernels.backend(backend):
            return kernels.exponential_products(*terms[backend])[0]

    deviation = difference(sums("compiled"), sums("portable"))
    if not deviation <= TOLERANCE:
        raise RuntimeError(
            f"the sums differ by {deviation:.2g}, more than {TOLERANCE:g}, so times cannot be compared. "
            "Run the tests of permalign.kernels."
        )
    seconds = best_seconds({name: (lambda name=name: sums(name), times) for name in terms})
    return Measurement(
        "additive-softmax",
        f"SSNT, I={size.cells}, J={size.steps}, B={size.batch}, V={size.vocab_size:,}: "
        "speedup of the compiled sums of the softmax over plain torch",
        seconds["portable"] / seconds["compiled"],
        "x",
        details={f"{name} seconds": value for name, value in seconds.items()} | {"difference": deviation},
    )


def measure_memory(softmax: Softmax, **size: int) -> dict[str, float]:
    """Compute one likelihood, and measure the growth to peak memory (a job for a new process)."""
    Problem(Size(1, 2, 2, 4, 4)).likelihood(
        softmax
    )  # so that what is loaded at the first call is not counted
    problem, before = Problem(Size(**size)), current_bytes()
    problem.likelihood(softmax)
    return {"extra bytes": peak_bytes() - before}
