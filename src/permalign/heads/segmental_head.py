"""What the heads `swan` and `segments` share: every source cell writes one segment of the output."""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.heads.base import Head
from permalign.kernels.portable.monotone import log_recurrence
from permalign.shapes import Float, Int
from permalign.structures import Segment, SegmentalAlignment


class SegmentalHead(Head):
    """A head whose output is the concatenation of one segment of 0..L tokens for every source cell.

    A subclass says how probable each segment is; `permalign.SegmentalAlignment` sums over all segmentations.

    Attributes:
        max_segment_length: L, the length of the longest segment.
    """

    max_segment_length: int

    @abstractmethod
    def cells(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n cell_size"]:
        """Return the source cells, in context if there is an encoder."""

    @abstractmethod
    def segment_log_probs(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "batch n starts sizes"]:
        """Return the log-probability that a cell writes each segment of the output, ``[cell, start, size]``."""

    def max_output_length(self, source_length: int) -> int:
        """Return ``n L``: every source token writes one segment."""
        return source_length * self.max_segment_length

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the log-probability of every output, summed over all its segmentations."""
        return self._alignment(states, lengths, target, target_lengths, smoothing).log_likelihood()

    def segments(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        order: Int[Tensor, "batch n"] | None,
    ) -> list[list[Segment]]:
        """Return the most probable segmentation: one segment for every source token (position, without an order)."""
        with torch.no_grad():
            return self._alignment(states, lengths, target, target_lengths).segments(order)

    def alignment_posteriors(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch cells m"]:
        """Return exact posteriors given the order of the states: a cell wrote the tokens of its segment."""
        with torch.no_grad():
            segments = self._alignment(states, lengths, target, target_lengths).posteriors()
        batch, cells, starts, _ = segments.shape
        written = segments.new_zeros(batch, cells, target.shape[1])
        for token in range(starts - 1):
            for size in range(1, self.max_segment_length + 1):
                first = max(token - size + 1, 0)
                written[:, :, token] += segments[:, :, first : token + 1, size].sum(2)
        return written

    def _alignment(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float = 0.0
    ) -> SegmentalAlignment:
        log_probs = self.segment_log_probs(states, lengths, target, target_lengths, smoothing)
        return SegmentalAlignment(log_probs, lengths, target_lengths, validate_args=False)

    def _checked(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float
    ) -> tuple[Float[Tensor, "batch n cell_size"], Int[Tensor, "batch m"]]:
        """Check the arguments of `log_likelihood`; return the cells, and the outputs without needless padding."""
        self.require_target(states, target, target_lengths, smoothing)
        cells = self.cells(states, lengths)
        self._require_room(lengths, target_lengths)
        return cells, target[:, : int(target_lengths.max())].long()

    def _require_room(self, lengths: Tensor, target_lengths: Tensor) -> None:
        """Require that every output can be cut into one segment for each source token."""
        too_long = target_lengths > lengths * self.max_segment_length
        if bool(too_long.any()):
            row = int(too_long.nonzero()[0])
            target_length, cells, longest = (
                int(target_lengths[row]),
                int(lengths[row]),
                self.max_segment_length,
            )
            raise ValueError(
                f"target_lengths[{row}] is {target_length}, but {cells} source tokens with segments of at most "
                f"{longest} tokens write at most {cells * longest}. Build the head with "
                f"max_segment_length={-(-target_length // cells)} or more, or leave the pair out."
            )


def enter_cells(
    grown: Float[Tensor, "rows n sizes"],
    stop: Float[Tensor, "rows n sizes"],
    first: Float[Tensor, " rows"],
    lengths: Int[Tensor, " rows"],
) -> tuple[Float[Tensor, "rows n sizes"], Float[Tensor, " rows"]]:
    """Let segments stop before the next token of a prefix is written. O(n (L + log n)) for each row.

    A cell is entered from the previous one, whose segment stops after some tokens of the prefix or after none:

        entered[t] = log( sum_k exp(grown[t-1,k] + stop[t-1,k]) + exp(entered[t-1] + stop[t-1,0]) )

    What enters one past the last cell has written the whole output.

    Args:
        grown: ``[t, k - 1]``, the log-probability of the prefix with its last k tokens in the segment of cell t, for
            k = 1..L.
        stop: ``[t, k]``, the log-probability that the segment of cell t stops after k tokens, for k = 0..L-1. A
            segment of L tokens stops by itself.
        first: the log-probability that the first cell is entered now: 0 for an empty prefix, otherwise LOG_ZERO.
        lengths: the number of cells of each row.

    Returns:
        The log-probability of being about to write a token of cell t after k of its tokens, for k = 0..L-1; and that
        of having finished.
    """
    stopped = (grown + pad(stop[..., 1:], (0, 1))).logsumexp(-1)  # (rows, n)
    sources = torch.cat([first[:, None], stopped], dim=1)
    entered = log_recurrence(sources, pad(stop[..., 0], (1, 0)))  # (rows, n + 1)
    finished = entered.gather(1, lengths[:, None]).squeeze(1)
    return torch.cat([entered[:, :-1, None], grown[..., :-1]], dim=2), finished
