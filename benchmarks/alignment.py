"""The likelihood of monotone alignments through the additive softmax, against the softmax over the whole cube.

Both begin with the same two projections onto the vocabulary and end with the gradients in states, weights and
emission logits; they differ only in how words are normalised.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks import processes
from benchmarks.measuring import MEGABYTE, Measurement, best_seconds, current_bytes, difference, peak_bytes
from benchmarks.reordering import TOLERANCE
from permalign import MonotoneAlignment
from permalign.heads import additive_word_log_probs

Way = Literal["additive", "full"]


class Size(NamedTuple):
    """Sentence pairs, source cells, target steps, words of the vocabulary, width of the states."""

    batch: int = 32
    cells: int = 17
    steps: int = 18
    words: int = 8800
    width: int = 256


def full_word_log_probs(cell_logits: Tensor, step_logits: Tensor, targets: Tensor) -> Tensor:
    """The slow twin of `additive_word_log_probs`: normalise every (cell, step) pair on its own."""
    cube = (cell_logits[:, :, None] + step_logits[:, None]).log_softmax(-1)  # (batch, cells, steps, words)
    wanted = targets[:, None, :, None].expand(-1, cube.shape[1], -1, -1)
    return cube.gather(-1, wanted).squeeze(-1)


class Problem:
    """Random states of cells and steps, and the parameters that project them onto words."""

    def __init__(self, size: Size) -> None:
        torch.manual_seed(0)
        self.cells = torch.randn(size.batch, size.cells, size.width)
        self.steps = torch.randn(size.batch, size.steps, size.width)
        self.cell_weight, self.step_weight = torch.randn(2, size.words, size.width) / size.width**0.5
        self.bias = torch.randn(size.words)
        self.emit_logits = torch.randn(size.batch, size.cells, size.steps)
        self.targets = torch.randint(size.words, (size.batch, size.steps))
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

    def likelihood(self, way: Way) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Log-likelihoods ``(batch,)``, and the gradients of their sum."""
        log_probs_of = additive_word_log_probs if way == "additive" else full_word_log_probs
        cell_logits = self.cells @ self.cell_weight.T
        step_logits = self.steps @ self.step_weight.T + self.bias
        word_log_probs = log_probs_of(cell_logits, step_logits, self.targets)
        likelihood = MonotoneAlignment(self.emit_logits, word_log_probs).log_likelihood()
        return likelihood.detach(), torch.autograd.grad(likelihood.sum(), self.inputs)


def additive_against_full(size: Size, times: int = 5) -> list[Measurement]:
    """How many times faster, and how many times less memory."""
    problem = Problem(size)
    differ = difference(problem.likelihood("additive")[0], problem.likelihood("full")[0])
    if not differ <= TOLERANCE:
        raise RuntimeError(
            f"the two likelihoods differ by {differ:.2g}, more than {TOLERANCE:g}: there is nothing to compare. "
            "Run the tests of permalign.heads."
        )
    seconds = best_seconds(
        {
            "additive": (lambda: problem.likelihood("additive"), 3 * times),
            "full": (lambda: problem.likelihood("full"), times),
        }
    )
    extra = {
        way: processes.run("alignment_memory", way=way, **size._asdict())["extra bytes"]
        for way in ("additive", "full")
    }
    label = f"B={size.batch}, I={size.cells}, J={size.steps}, V={size.words:,}"
    return [
        Measurement(
            "ssnt-time",
            f"{label}: SSNT faster than with the full softmax",
            seconds["full"] / seconds["additive"],
            "x",
            "at least",
            3.0,
            {"full seconds": seconds["full"], "additive seconds": seconds["additive"], "difference": differ},
        ),
        Measurement(
            "ssnt-memory",
            f"{label}: SSNT, less peak memory",
            extra["full"] / extra["additive"],
            "x",
            "at least",
            5.0,
            {f"{way} megabytes": size_ / MEGABYTE for way, size_ in extra.items()},
        ),
    ]


def measure_memory(way: Way, **size: int) -> dict[str, float]:
    """Inside a fresh process: one pass, and by how much its memory grew at most."""
    Problem(Size(1, 2, 2, 4, 4)).likelihood(way)  # what is loaded once is not counted
    problem, before = Problem(Size(**size)), current_bytes()
    problem.likelihood(way)
    return {"extra bytes": peak_bytes() - before}
