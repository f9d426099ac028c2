"""Segmental alignments, in which every source cell emits one segment of the output (SWAN: Wang et al., 2017)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from permalign.checks import (
    require_floats,
    require_lengths,
    require_log_probs,
    require_order_of_cells,
    require_range,
    sample_count,
    shape_of,
    should_validate,
)
from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.structures.aligned_segments import Segment, consecutive_segments
from permalign.structures.log_space import LOG_ZERO, minus_infinity_below, zero_if_impossible
from permalign.structures.monotone import BestAlignment


class SegmentalAlignment:
    r"""All ways to cut an output into one segment of 0..L words for every source cell, from left to right.

    With ``alpha_t(j)`` the log of the summed weight of the ways in which the first t cells write j words:

        alpha_0(0) = 0      alpha_t(j) = logsumexp_l alpha_{t-1}(j-l) + segment[t,j-l,l]      p(y|x) = alpha_I(J)

    O(I J L).

    Args:
        segment_log_probs: ``(batch, cells, J + 1, L + 1)`` indexed ``[cell, start, length]``: the log-probability that
            the cell emits the words start..start+length-1 and then ends its segment; may be -inf.
        source_lengths: ``(batch,)``, the number of cells; None means all.
        target_lengths: ``(batch,)``, the number of words, 0 allowed; None means all.
        validate_args: whether to check the values of the arguments; None means torch's default.

    Example: two cells, one word, segments of at most one word.

        >>> segments = torch.full((1, 2, 2, 2), 0.5).log()
        >>> SegmentalAlignment(segments).log_likelihood().exp()  # the word comes from the first cell or the second
        tensor([0.5000])
    """

    def __init__(
        self,
        segment_log_probs: Float[Tensor, "batch cells starts sizes"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = "segment_log_probs"
        require_floats({name: segment_log_probs})
        if segment_log_probs.dim() != 4 or 0 in segment_log_probs.shape[1:]:
            raise ValueError(
                f"{name} has shape {shape_of(segment_log_probs)}, but must be (batch, cells, J + 1, L + 1) for outputs "
                "of J words and segments of at most L, indexed [cell, start, length]."
            )
        _, cells, starts, sizes = segment_log_probs.shape
        self.segment_log_probs = segment_log_probs
        self.max_segment_length = sizes - 1
        self.source_lengths = require_lengths(
            "source_lengths", source_lengths, name, segment_log_probs, cells
        )
        self.target_lengths = require_lengths(
            "target_lengths", target_lengths, name, segment_log_probs, starts - 1
        )
        if should_validate(validate_args):
            require_range("source_lengths", self.source_lengths, name, segment_log_probs, cells, what="cells")
            require_range(
                "target_lengths", self.target_lengths, name, segment_log_probs, starts - 1, minimum=0
            )
            require_log_probs(name, segment_log_probs, self._possible())
            self._require_room()

    def log_likelihood(self) -> Float[Tensor, " batch"]:
        """The log-probability of the output, summed over all ways to cut it."""
        total = self._at_end(self._chart(self.segment_log_probs)[0])
        return minus_infinity_below(total, total)

    def posteriors(self) -> Float[Tensor, "batch cells starts sizes"]:
        """The probability that the cell emits exactly that segment, given the output; 0 where impossible.

        These are the gradients of the likelihood with respect to the segments' log-probabilities. They are differences
        of sums that may be large, so they are computed in double precision.
        """
        if self.segment_log_probs.dtype != torch.float64:
            exact = SegmentalAlignment(
                self.segment_log_probs.double(), self.source_lengths, self.target_lengths, validate_args=False
            )
            return exact.posteriors().to(self.segment_log_probs.dtype)
        _, terms = self._chart(self.segment_log_probs)  # (batch, cells, end, length)
        total = zero_if_impossible(self.log_likelihood())
        through = (terms + self._after()[..., None] - total[:, None, None, None]).exp()
        end, size = self._ends()
        by_start = through[:, :, end.clamp(max=terms.shape[2] - 1), size]
        return torch.where(self._possible(), by_start, 0.0)

    def best_alignment(self) -> BestAlignment:
        """The most probable way to cut the output: the cell of every word, and the joint log-probability."""
        with torch.no_grad():
            alpha, terms = self._chart(self.segment_log_probs, maximise=True)
            cells, _ = self._trace_back(terms, None)
            total = self._at_end(alpha)
        return BestAlignment(cells, minus_infinity_below(total, total))

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Int[Tensor, "*samples batch words"]:
        """Ways to cut the output drawn from their posterior: the cell of every word, -1 at padding."""
        copies = sample_count(sample_shape)
        with torch.no_grad():
            _, terms = self._chart(self.segment_log_probs)
            batch, cells = self.segment_log_probs.shape[:2]
            terms = terms.repeat(copies, 1, 1, 1)
            uniforms = torch.rand(
                (copies * batch, cells), generator=generator, dtype=terms.dtype, device=terms.device
            )
            drawn, _ = self._trace_back(terms, uniforms)
        return drawn.view(*sample_shape, batch, self.segment_log_probs.shape[2] - 1)

    def segments(self, order: Int[Tensor, "batch n"] | None = None) -> list[list[Segment]]:
        """The best way to cut the output, one segment for every cell, empty ones included.

        Args:
            order: ``(batch, cells)``, the token that stands at each cell, to get tokens instead of cells.
        """
        if order is not None:
            require_order_of_cells(order, *self.segment_log_probs.shape[:2])
        with torch.no_grad():
            _, sizes = self._trace_back(self._chart(self.segment_log_probs, maximise=True)[1], None)
        segmentations = []
        for row, row_sizes in enumerate(sizes.tolist()):
            length = int(self.source_lengths[row])
            tokens = list(range(length)) if order is None else order[row].tolist()[:length]
            segmentations.append(consecutive_segments([(token,) for token in tokens], row_sizes[:length]))
        return segmentations

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _ends(self) -> tuple[Tensor, Tensor]:
        """The ends of segments, ``(J + 1, L + 1)`` by start and size, and the sizes ``(L + 1,)``."""
        _, _, starts, sizes = self.segment_log_probs.shape
        size = torch.arange(sizes, device=self.segment_log_probs.device)
        return torch.arange(starts, device=size.device)[:, None] + size, size

    def _possible(self) -> Tensor:
        """A mask ``(batch, cells, J + 1, L + 1)`` of the (cell, start, length) that lie inside the pair."""
        in_source = length_mask(self.source_lengths, self.segment_log_probs.shape[1])
        in_target = self._ends()[0] <= self.target_lengths[:, None, None]
        return in_source[:, :, None, None] & in_target[:, None]

    def _require_room(self) -> None:
        too_long = self.target_lengths > self.source_lengths * self.max_segment_length
        if bool(too_long.any()):
            row = int(too_long.nonzero()[0])
            words, cells = int(self.target_lengths[row]), int(self.source_lengths[row])
            longest = self.max_segment_length
            raise ValueError(
                f"target_lengths[{row}] is {words} words, but {cells} source cells with segments of at most "
                f"L = {longest} words write {cells * longest} at most. Use L = {-(-words // cells)} or more "
                f"(segment_log_probs has shape {shape_of(self.segment_log_probs)}), or leave the pair out."
            )

    def _chart(self, segment_log_probs: Tensor, maximise: bool = False) -> tuple[Tensor, Tensor]:
        """alpha after the last cell ``(batch, J + 1)``, and the terms of its sums ``(batch, cells, end, length)``."""
        batch, cells, starts, sizes = segment_log_probs.shape
        device = segment_log_probs.device
        scores = self._scores(segment_log_probs)
        end, size = torch.arange(starts, device=device)[:, None], torch.arange(sizes, device=device)
        start = end - size  # (J + 1, L + 1)
        alpha = scores.new_full((batch, starts), LOG_ZERO)
        alpha[:, 0] = 0.0
        by_cell = []
        for cell in range(cells):
            terms = (alpha[..., None] + scores[:, cell])[:, start.clamp(min=0), size]
            terms = torch.where(start >= 0, terms, LOG_ZERO)  # (batch, end, length)
            after = terms.amax(-1) if maximise else terms.logsumexp(-1)
            alpha = torch.where((cell < self.source_lengths)[:, None], after, alpha)
            by_cell.append(terms)
        return alpha, torch.stack(by_cell, dim=1)

    def _scores(self, segment_log_probs: Tensor) -> Tensor:
        return torch.where(self._possible(), segment_log_probs, LOG_ZERO).clamp(min=LOG_ZERO)

    def _after(self) -> Tensor:
        """The log of the summed weight of all ways in which later cells finish the output, ``(batch, cells, end)``."""
        scores = self._scores(self.segment_log_probs)
        batch, cells, starts, _ = scores.shape
        end, _ = self._ends()
        word = torch.arange(starts, device=scores.device)
        done = word == self.target_lengths[:, None]
        after = torch.where(done, 0.0, scores.new_full((batch, starts), LOG_ZERO))
        remaining = []  # from the last cell to the first
        for cell in range(cells - 1, -1, -1):
            remaining.append(after)
            terms = scores[:, cell] + after[:, end.clamp(max=starts - 1)]  # LOG_ZERO beyond the output
            after = torch.where((cell < self.source_lengths)[:, None], terms.logsumexp(-1), after)
        return torch.stack(remaining[::-1], dim=1)

    def _at_end(self, alpha: Tensor) -> Tensor:
        return alpha.gather(1, self.target_lengths[:, None]).squeeze(1)

    def _trace_back(self, terms: Tensor, uniforms: Tensor | None) -> tuple[Tensor, Tensor]:
        """Follow alignments back from the last cell: cells of words ``(batch, J)``, sizes ``(batch, cells)``."""
        count, cells, starts, sizes = terms.shape
        copies = count // self.source_lengths.shape[0]
        source_lengths, end = self.source_lengths.repeat(copies), self.target_lengths.repeat(copies)
        row, word = torch.arange(count, device=terms.device), torch.arange(starts - 1, device=terms.device)
        aligned = torch.full((count, starts - 1), -1, device=terms.device)
        chosen_sizes = torch.zeros((count, cells), dtype=torch.int64, device=terms.device)
        for cell in range(cells - 1, -1, -1):
            options = terms[row, cell, end]
            if uniforms is None:
                size = options.argmax(-1)
            else:
                cumulative = options.softmax(-1).cumsum(-1)
                size = (
                    (cumulative <= uniforms[:, cell, None] * cumulative[:, -1:]).sum(-1).clamp(max=sizes - 1)
                )
            size = torch.where(cell < source_lengths, size, 0)
            start = end - size
            in_segment = (word >= start[:, None]) & (word < end[:, None])
            aligned = torch.where(in_segment, cell, aligned)
            chosen_sizes[:, cell] = size
            end = start
        return aligned, chosen_sizes
