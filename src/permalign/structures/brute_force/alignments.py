"""`MonotoneAlignment` and `SegmentalAlignment` by listing every alignment: references for tests, and definitions.

An alignment gives every word of the output the cell that emits it, from left to right and never back:
``cells[step]``, counted from zero. Sentences are computed one at a time in plain Python loops; gradients come from
autograd.
"""

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


class EnumeratedAlignments(NamedTuple):
    """The best alignment of every sentence, and its log probability jointly with the output."""

    cells: Tensor  # (batch, step), -1 in padding
    log_prob: Tensor  # (batch,)


class EnumeratedSegment(NamedTuple):
    """Cells (or source tokens), and the steps of the output that they emit together."""

    source: tuple[int, ...]
    target: tuple[int, ...]


class _Enumerated:
    """What the two classes share: sums, maxima and draws over a list of alignments with log weights."""

    source_lengths: list[int]
    target_lengths: list[int]
    steps: int

    def alignments(self, sentence: int) -> list[tuple[int, ...]]:
        """Every alignment of one sentence."""
        raise NotImplementedError

    def weight(self, sentence: int, cells: tuple[int, ...]) -> Tensor:
        """The log probability, jointly, of an alignment and the output."""
        raise NotImplementedError

    def weights(self, sentence: int) -> Tensor:
        """The log weight of every alignment, ``(alignment,)``."""
        return torch.stack([self.weight(sentence, cells) for cells in self.alignments(sentence)])

    def log_likelihood(self) -> Tensor:
        """``(batch,)``: the log of the summed weights of all alignments."""
        return torch.stack([self.weights(b).logsumexp(0) for b in range(len(self.source_lengths))])

    def best_alignment(self) -> EnumeratedAlignments:
        """The alignment of the largest weight, and that weight."""
        cells, values = [], []
        for sentence in range(len(self.source_lengths)):
            weights = self.weights(sentence)
            cells.append(self._padded(self.alignments(sentence)[int(weights.argmax())]))
            values.append(weights.max())
        return EnumeratedAlignments(torch.tensor(cells), torch.stack(values))

    def sample(self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Cells ``(*sample_shape, batch, step)`` drawn from the alignments of the given output."""
        count = int(torch.Size(sample_shape).numel())
        columns = []
        for sentence in range(len(self.source_lengths)):
            probabilities = self.weights(sentence).softmax(0).detach()
            drawn = torch.multinomial(probabilities, count, replacement=True, generator=generator)
            columns.append(torch.tensor([self._padded(cells) for cells in self.alignments(sentence)])[drawn])
        return torch.stack(columns, 1).reshape(*sample_shape, len(self.source_lengths), self.steps)

    def _padded(self, cells: tuple[int, ...]) -> tuple[int, ...]:
        return cells + (-1,) * (self.steps - len(cells))


class EnumeratedMonotoneAlignment(_Enumerated):
    """The alignments of SSNT by enumeration; it has the methods of `MonotoneAlignment`.

    ``emit_logits`` and ``word_log_probs`` are ``(batch, cell, step)``. Standing at a cell before step j, emit
    word j with probability ``sigmoid(emit_logits[cell, j])``, else move to the next cell; at the last cell
    there is nowhere to move, so it emits with certainty, and the last word comes from there.

    >>> third = torch.full((1, 2, 3), 1 / 3).log()  # three words, all equally likely everywhere
    >>> twin = EnumeratedMonotoneAlignment(torch.zeros(1, 2, 3), third, torch.tensor([2]), torch.tensor([3]))
    >>> twin.alignments(0)
    [(0, 0, 1), (0, 1, 1), (1, 1, 1)]
    >>> (twin.log_likelihood().exp() * 27)  # one eighth, one fourth and one half
    tensor([0.8750])
    """

    def __init__(
        self, emit_logits: Tensor, word_log_probs: Tensor, source_lengths: Tensor, target_lengths: Tensor
    ) -> None:
        self.emit_logits = emit_logits
        self.word_log_probs = word_log_probs
        self.source_lengths = [int(length) for length in source_lengths]
        self.target_lengths = [int(length) for length in target_lengths]
        self.steps = emit_logits.shape[2]

    def alignments(self, sentence: int) -> list[tuple[int, ...]]:
        """Every non-decreasing sequence of cells that ends at the last one."""
        cells, steps = self.source_lengths[sentence], self.target_lengths[sentence]
        return [(*start, cells - 1) for start in combinations_with_replacement(range(cells), steps - 1)]

    def weight(self, sentence: int, cells: tuple[int, ...]) -> Tensor:
        """Walk along the alignment: a factor for every move, every emission and every word."""
        emit, words = self.emit_logits[sentence], self.word_log_probs[sentence]
        last = self.source_lengths[sentence] - 1
        total, here = words.new_zeros(()), 0
        for step, cell in enumerate(cells):
            while here < cell:
                total = total + logsigmoid(-emit[here, step])
                here += 1
            if here < last:
                total = total + logsigmoid(emit[here, step])
            total = total + words[here, step]
        return total

    def posteriors(self) -> Tensor:
        """``(batch, cell, step)``: the probability that this cell emitted this step, given the output."""
        rows = []
        for sentence in range(len(self.source_lengths)):
            alignments = self.alignments(sentence)
            emits = self.word_log_probs.new_zeros(len(alignments), *self.word_log_probs.shape[1:])
            for row, cells in enumerate(alignments):
                emits[row, list(cells), list(range(len(cells)))] = 1
            rows.append(torch.einsum("a,acs->cs", self.weights(sentence).softmax(0), emits))
        return torch.stack(rows)

    def segments(self, order: Tensor | None = None) -> list[list[EnumeratedSegment]]:
        """Runs of equal cells in the best alignment, each with all cells passed since the run before."""
        result = []
        for sentence, cells in enumerate(self.best_alignment().cells.tolist()):
            cells = cells[: self.target_lengths[sentence]]
            segments, consumed = [], 0
            for cell in sorted(set(cells)):
                source = tuple(range(consumed, cell + 1))
                target = tuple(step for step, other in enumerate(cells) if other == cell)
                if order is not None:
                    end = self.source_lengths[sentence] - 1
                    source = tuple(int(order[sentence, passed]) for passed in source if passed != end)
                segments.append(EnumeratedSegment(source, target))
                consumed = cell + 1
            result.append(segments)
        return result


class EnumeratedSegmentalAlignment(_Enumerated):
    """The alignments of SWAN by enumeration; it has the methods of `SegmentalAlignment`.

    ``segment_log_probs`` is ``(batch, cell, start, length)``: every cell in turn emits a segment, or nothing.

    >>> twin = EnumeratedSegmentalAlignment(torch.zeros(1, 2, 4, 3), torch.tensor([2]), torch.tensor([3]))
    >>> twin.alignments(0)  # two cells, three words, at most two words each
    [(0, 1, 1), (0, 0, 1)]
    """

    def __init__(self, segment_log_probs: Tensor, source_lengths: Tensor, target_lengths: Tensor) -> None:
        self.segment_log_probs = segment_log_probs
        self.source_lengths = [int(length) for length in source_lengths]
        self.target_lengths = [int(length) for length in target_lengths]
        self.steps = segment_log_probs.shape[2] - 1
        self.max_segment_length = segment_log_probs.shape[3] - 1

    def alignments(self, sentence: int) -> list[tuple[int, ...]]:
        """Every way to cut the output into one segment per cell."""
        cuts = compositions(
            self.target_lengths[sentence], self.source_lengths[sentence], self.max_segment_length
        )
        return [tuple(cell for cell, size in enumerate(cut) for _ in range(size)) for cut in cuts]

    def pieces(self, sentence: int, cells: tuple[int, ...]) -> list[tuple[int, int, int]]:
        """The ``(cell, start, length)`` of every cell's segment."""
        sizes = [cells.count(cell) for cell in range(self.source_lengths[sentence])]
        return [(cell, sum(sizes[:cell]), size) for cell, size in enumerate(sizes)]

    def weight(self, sentence: int, cells: tuple[int, ...]) -> Tensor:
        """The sum over cells of the log probability of the segment that each emits."""
        table = self.segment_log_probs[sentence]
        return torch.stack([table[piece] for piece in self.pieces(sentence, cells)]).sum()

    def posteriors(self) -> Tensor:
        """``(batch, cell, start, length)``: the probability of each segment, given the output."""
        rows = []
        for sentence in range(len(self.source_lengths)):
            alignments = self.alignments(sentence)
            emits = self.segment_log_probs.new_zeros(len(alignments), *self.segment_log_probs.shape[1:])
            for row, cells in enumerate(alignments):
                for cell, start, length in self.pieces(sentence, cells):
                    emits[row, cell, start, length] = 1
            rows.append(torch.einsum("a,acsl->csl", self.weights(sentence).softmax(0), emits))
        return torch.stack(rows)

    def segments(self, order: Tensor | None = None) -> list[list[EnumeratedSegment]]:
        """One segment for every cell of the best alignment, including empty ones."""
        result = []
        for sentence, cells in enumerate(self.best_alignment().cells.tolist()):
            aligned = tuple(cells[: self.target_lengths[sentence]])  # without padding
            result.append(
                [
                    EnumeratedSegment(
                        (cell if order is None else int(order[sentence, cell]),),
                        tuple(range(start, start + size)),
                    )
                    for cell, start, size in self.pieces(sentence, aligned)
                ]
            )
        return result


def compositions(total: int, parts: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a total as an ordered sum of a given number of parts, each in ``0..largest``."""
    if parts == 0:
        if total == 0:
            yield ()
        return
    for first in range(min(total, largest) + 1):
        for rest in compositions(total - first, parts - 1, largest):
            yield (first, *rest)
