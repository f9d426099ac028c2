"""What every head does: score an output given (reordered) source states, and write one word after the other."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from permalign.shapes import Bool, Float, Int
from permalign.structures import (
    Derivation,
    LabelledPermutation,
    Segment,
    SeparablePermutation,
    Transduction,
)
from permalign.text.batching import pad


class Decoder(ABC):
    """Partial outputs of one head, a row each, that grow by one word at a time.

    A beam search keeps several rows for each sentence. All scores are cumulative log-probabilities of a whole
    prefix: where a head sums over alignments they are exact marginals, and no two rows are the same prefix.
    """

    @abstractmethod
    def scores(self) -> Float[Tensor, "rows words"]:
        """The log-probability of every row's prefix followed by each word; that of END is the finished output's."""

    @abstractmethod
    def extend(self, rows: Int[Tensor, " new"], words: Int[Tensor, " new"]) -> None:
        """Replace all rows: new row i is old row ``rows[i]`` followed by ``words[i]`` (never END)."""


class Head(nn.Module, ABC):
    """Writes an output from source states.

    ``width`` is the width of the states it reads. ``same_length`` is True for a head whose outputs always have as
    many words as the source.
    """

    width: int
    same_length: bool = False

    def longest_output(self, source_words: int) -> int | None:
        """The most words it can write for a source of so many; None if there is no limit."""
        return source_words if self.same_length else None

    def most_words(self, source_words: int, longest: int | None) -> int:
        """The most words of an output that is looked for; ``longest`` is what a caller allows, None for a default."""
        limit = 2 * source_words + 10 if longest is None else longest
        possible = self.longest_output(source_words)
        if possible is None:
            return limit
        return possible if self.same_length else min(limit, possible)

    def can_write(
        self, source_lengths: Int[Tensor, " batch"], target_lengths: Int[Tensor, " batch"]
    ) -> Bool[Tensor, " batch"]:
        """Which outputs of so many words it can write for sources of so many."""
        most = [self.longest_output(words) for words in source_lengths.tolist()]
        return torch.tensor(
            [
                source > 0 and (limit is None or (target == limit if self.same_length else target <= limit))
                for source, target, limit in zip(
                    source_lengths.tolist(), target_lengths.tolist(), most, strict=True
                )
            ],
            device=source_lengths.device,
        )

    @abstractmethod
    def log_likelihood(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The exact log-likelihood of every output; with smoothing, every word's is mixed with the mean over words.

        Args:
            states: reordered source states, padded.
            lengths: of the source sentences.
            target: word numbers without begin and end, padded.
            target_lengths: of the outputs.
            smoothing: the label smoothing, 0 for the likelihood itself.
        """

    @abstractmethod
    def decoder(self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """One row for each sentence, with nothing written yet."""

    def alignment_posteriors(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch cells m"] | None:
        """How probable it is, given the output, that each cell wrote each word; None for a head without alignments.

        Cells are the positions of the reordered source; a head may have one more, at the end. 0 at padding.
        """
        return None

    def segments(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        order: Int[Tensor, "batch n"] | None,
    ) -> list[list[Segment]] | None:
        """Which source tokens stand behind which words of an output; None for a head without alignments."""
        return None

    def log_likelihood_over_orders(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The exact log-likelihood of every output, summed over all orders of the source as well.

        For heads whose words depend on one source state each; states are in the original order.
        """
        raise ValueError(
            f"{type(self).__name__} reads the whole reordered sentence, so its likelihood cannot be summed over all "
            "orders. Use a head of tagging or segments, or a bound by samples."
        )

    def derivations_over_orders(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> list[Transduction] | None:
        """The most probable derivation of every output among all orders; None for a head that does not search it."""
        return None

    def phrase_derivations(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        count: int,
    ) -> list[list[Derivation]] | None:
        """The most probable trees before any output is seen, where their leaves may be phrases; else None."""
        return None

    def leaf_states(
        self, states: Float[Tensor, "batch n width"], derivations: Sequence[Derivation]
    ) -> tuple[Float[Tensor, "batch leaves width"], Int[Tensor, " batch"]]:
        """What it reads of the leaves of each derivation, in their order; and how many there are."""
        order, lengths = (tensor.to(states.device) for tensor in pad([one.order for one in derivations]))
        return states.gather(1, order[..., None].expand(-1, -1, states.shape[2])), lengths
