"""Monotone alignments of a sentence and an output, summed exactly (SSNT: Yu, Buys and Blunsom, 2016)."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from permalign import kernels
from permalign.checks import (
    require_floats,
    require_lengths,
    require_log_probs,
    require_order_of_cells,
    require_range,
    require_scores,
    sample_count,
    shape_of,
    should_validate,
)
from permalign.kernels.portable import monotone
from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.structures.aligned_segments import Segment
from permalign.structures.log_space import LOG_ZERO, minus_infinity_below, zero_if_impossible


class BestAlignment(NamedTuple):
    """The most probable alignment of every pair.

    Attributes:
        cells: ``(batch, steps)``, the source cell that emits each word; -1 at padding.
        log_prob: ``(batch,)``, the joint log-probability of this alignment and the output.
    """

    cells: Tensor
    log_prob: Tensor


class MonotoneAlignment:
    r"""All ways in which source cells, read once from left to right, can emit the words of a given output.

    At cell i with j words written, the model emits word j there with probability ``e(i,j) = sigmoid(emit_logits)``,
    or moves on to the next cell. At its last cell it must emit, and the last word (the end of the sentence) is
    emitted there. With ``q(i,j)`` the probability of being at cell i with j words written (counted from 0):

        q(0,0) = 1      q(i,j) = q(i,j-1) e(i,j-1) p(y_{j-1}|i,j-1) + q(i-1,j) (1 - e(i-1,j))
        p(y|x) = q(I-1,J-1) p(y_{J-1}|I-1,J-1)

    O(I J), in I + J steps over anti-diagonals, in log space.

    Args:
        emit_logits: ``(batch, cells, steps)``, log-odds of emitting word j at cell i against moving on.
        word_log_probs: ``(batch, cells, steps)``, the log-probability of word j if emitted at cell i; may be -inf.
        source_lengths: ``(batch,)``, the number of cells, the end cell included; None means all.
        target_lengths: ``(batch,)``, the number of words, the end of sentence included; None means all.
        validate_args: whether to check the values of the arguments; None means torch's default.

    Example: two cells, two words; the second word must come from the second cell, the first from either.

        >>> emit = torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])  # the first cell emits with probability 1/2
        >>> words = torch.tensor([[[0.8, 0.5], [0.4, 0.5]]]).log()
        >>> alignment = MonotoneAlignment(emit, words)
        >>> alignment.log_likelihood().exp()  # (.5 * .8 * .5 + .5 * .4) * .5
        tensor([0.2000])
        >>> alignment.posteriors()[0]
        tensor([[0.5000, 0.0000],
                [0.5000, 1.0000]])
    """

    def __init__(
        self,
        emit_logits: Float[Tensor, "batch cells steps"],
        word_log_probs: Float[Tensor, "batch cells steps"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        require_floats({"emit_logits": emit_logits, "word_log_probs": word_log_probs})
        if emit_logits.dim() != 3 or 0 in emit_logits.shape[1:] or emit_logits.shape != word_log_probs.shape:
            raise ValueError(
                f"emit_logits has shape {shape_of(emit_logits)} and word_log_probs {shape_of(word_log_probs)}, but "
                "both must be (batch, cells, steps), with at least one cell and one step."
            )
        _, cells, steps = emit_logits.shape
        self.emit_logits, self.word_log_probs = emit_logits, word_log_probs
        self.source_lengths = require_lengths(
            "source_lengths", source_lengths, "emit_logits", emit_logits, cells
        )
        self.target_lengths = require_lengths(
            "target_lengths", target_lengths, "emit_logits", emit_logits, steps
        )
        if should_validate(validate_args):
            require_range(
                "source_lengths", self.source_lengths, "emit_logits", emit_logits, cells, what="cells"
            )
            require_range("target_lengths", self.target_lengths, "emit_logits", emit_logits, steps)
            require_scores(
                "emit_logits", emit_logits, self._present(), "A logit of 100 already means certainty."
            )
            require_log_probs("word_log_probs", word_log_probs, self._present())

    def log_likelihood(self) -> Float[Tensor, " batch"]:
        """The log-probability of the output, summed over all alignments."""
        total = kernels.monotone_inside(*self._steps(), self.source_lengths, self.target_lengths)
        return minus_infinity_below(total, total)

    def posteriors(self) -> Float[Tensor, "batch cells steps"]:
        """The probability that word j is emitted at cell i, given the output; 0 at padding.

        These are the gradients of the likelihood with respect to the words' log-probabilities. They are differences of
        sums that may be large, so they are computed in double precision.
        """
        if self.emit_logits.dtype != torch.float64:
            exact = MonotoneAlignment(
                self.emit_logits.double(),
                self.word_log_probs.double(),
                self.source_lengths,
                self.target_lengths,
                validate_args=False,
            )
            return exact.posteriors().to(self.emit_logits.dtype)
        emit, move = self._steps()
        after = monotone.remaining(emit, move, self.source_lengths, self.target_lengths)
        through = monotone.lattice(emit, move) + emit + after
        total = zero_if_impossible(self.log_likelihood())
        return torch.where(self._present(), (through - total[:, None, None]).exp(), 0.0)

    def best_alignment(self) -> BestAlignment:
        """The most probable alignment (the maximum in place of the sum), and its joint log-probability."""
        with torch.no_grad():
            emit, move = self._steps()
            reached = monotone.lattice(emit, move, maximise=True)
            cells = self._trace_back(reached, emit, move, None)
            total = self._at_end(reached)
        return BestAlignment(cells, minus_infinity_below(total, total))

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Int[Tensor, "*samples batch steps"]:
        """Alignments drawn from their posterior given the output: the cell of every word, -1 at padding."""
        copies = sample_count(sample_shape)
        with torch.no_grad():
            emit, move = self._steps()
            reached = monotone.lattice(emit, move)
            batch, cells, steps = emit.shape
            uniforms = torch.rand(
                (copies * batch, cells + steps), generator=generator, dtype=emit.dtype, device=emit.device
            )
            reached, emit, move = (tensor.repeat(copies, 1, 1) for tensor in (reached, emit, move))
            drawn = self._trace_back(reached, emit, move, uniforms)
        return drawn.view(*sample_shape, batch, steps)

    def segments(self, order: Int[Tensor, "batch n"] | None = None) -> list[list[Segment]]:
        """The best alignment as segments: runs of words from one cell, with the cells read since the last run.

        Args:
            order: ``(batch, cells - 1)``, the token that stands at each cell, to get tokens instead of cells. The last
                cell of a pair is its end cell, which stands for no token and is left out.
        """
        batch, cells, _ = self.emit_logits.shape
        if order is not None:
            require_order_of_cells(order, batch, cells - 1)
        segmentations = []
        for row, alignment in enumerate(self.best_alignment().cells.tolist()):
            end_cell = int(self.source_lengths[row]) - 1
            tokens = list(range(end_cell + 1)) if order is None else order[row].tolist()[:end_cell]
            segments, consumed = [], 0
            words = enumerate(alignment[: int(self.target_lengths[row])])
            for cell, run in groupby(words, key=lambda word: word[1]):
                target = tuple(step for step, _ in run)
                segments.append(Segment(tuple(tokens[consumed : cell + 1]), target))
                consumed = cell + 1
            segmentations.append(segments)
        return segmentations

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _present(self) -> Tensor:
        """A mask of the (cell, step) pairs that are not padding."""
        _, cells, steps = self.emit_logits.shape
        in_source = length_mask(self.source_lengths, cells)
        in_target = length_mask(self.target_lengths, steps)
        return in_source[:, :, None] & in_target[:, None]

    def _steps(self) -> tuple[Tensor, Tensor]:
        """The log-weights of emitting word j at cell i, and of moving to the next cell; LOG_ZERO where impossible."""
        present, zero = self._present(), self.emit_logits.new_zeros(())
        logits = torch.where(present, self.emit_logits, zero)
        words = torch.where(present, self.word_log_probs, zero).clamp(min=LOG_ZERO)
        cells = torch.arange(logits.shape[1], device=logits.device)
        last = (cells == self.source_lengths[:, None] - 1)[:, :, None]
        emit = torch.where(last, zero, logsigmoid(logits)) + words
        move = torch.where(last, LOG_ZERO, logsigmoid(-logits))
        return emit, move

    def _at_end(self, reached: Tensor) -> Tensor:
        """The log-weight of complete alignments: of reaching the last cell before the last word, and of that word."""
        row = torch.arange(reached.shape[0], device=reached.device)
        cell, step = self.source_lengths - 1, self.target_lengths - 1
        return reached[row, cell, step] + self.word_log_probs[row, cell, step].clamp(min=LOG_ZERO)

    def _trace_back(self, reached: Tensor, emit: Tensor, move: Tensor, uniforms: Tensor | None) -> Tensor:
        """Follow alignments from the last word back to the first, by the heavier of two steps or by a random one."""
        count, cells, steps = reached.shape
        copies = count // self.source_lengths.shape[0]
        row = torch.arange(count, device=reached.device)
        cell, step = (self.source_lengths - 1).repeat(copies), (self.target_lengths - 1).repeat(copies)
        aligned = torch.full((count, steps), -1, device=reached.device)
        aligned[row, step] = cell
        for turn in range(cells + steps - 2):
            by_word = (reached + emit)[row, cell, (step - 1).clamp(min=0)]
            by_move = (reached + move)[row, (cell - 1).clamp(min=0), step]
            by_move = torch.where(cell > 0, by_move, -torch.inf)
            share = torch.sigmoid(
                by_word - by_move
            )  # the probability that this state was reached by emitting
            emitted = (share >= 0.5 if uniforms is None else uniforms[:, turn] < share) & (step > 0)
            moved = ~emitted & (cell > 0)
            step, cell = step - emitted.long(), cell - moved.long()
            aligned[row[emitted], step[emitted]] = cell[emitted]
        return aligned
