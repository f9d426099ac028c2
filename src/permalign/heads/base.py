"""What every head does: score an output given (reordered) source states, and write one word after the other."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from permalign.checks import require_lengths, require_range, shape_of
from permalign.masks import length_mask
from permalign.shapes import Bool, Float, Int
from permalign.structures import (
    Derivation,
    LabelledPermutation,
    Segment,
    SeparablePermutation,
    Transduction,
)
from permalign.text.batching import pad
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID


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
    words: int
    same_length: bool = False

    def max_output_length(self, source_words: int) -> int | None:
        """The most words it can write for a source of so many; None if there is no limit."""
        return source_words if self.same_length else None

    def most_words(self, source_words: int, longest: int | None) -> int:
        """The most words of an output that is looked for; ``longest`` is what a caller allows, None for a default."""
        limit = 2 * source_words + 10 if longest is None else longest
        possible = self.max_output_length(source_words)
        if possible is None:
            return limit
        return possible if self.same_length else min(limit, possible)

    def can_write(
        self, source_lengths: Int[Tensor, " batch"], target_lengths: Int[Tensor, " batch"]
    ) -> Bool[Tensor, " batch"]:
        """Which outputs of so many words it can write for sources of so many."""
        most = [self.max_output_length(words) for words in source_lengths.tolist()]
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

    def require_states(self, states: Tensor, lengths: Tensor) -> None:
        """Require states ``(batch, n, width)`` of sentences that have at least one word."""
        if states.dim() != 3 or states.shape[2] != self.width:
            raise ValueError(
                f"states has shape {shape_of(states)}, but must be (batch, n, {self.width}), as the head was built "
                "for."
            )
        require_lengths("lengths", lengths, "states", states, states.shape[1])
        require_range("lengths", lengths, "states", states, states.shape[1])

    def require_target(
        self, states: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float = 0.0
    ) -> None:
        """Require outputs ``(batch, m)`` of words that can be written, and a label smoothing below one."""
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing is {smoothing}, but must lie in 0 <= smoothing < 1; 0 is none.")
        batch, words = states.shape[0], self.words
        if target.dim() != 2 or target.shape[0] != batch or target.is_floating_point():
            raise ValueError(
                f"target has shape {shape_of(target)} and dtype {target.dtype}, but must be ({batch}, m) token ids: "
                "one output for every sentence in states."
            )
        require_lengths("target_lengths", target_lengths, "target", target, target.shape[1])
        require_range("target_lengths", target_lengths, "target", target, target.shape[1], minimum=0)
        special = (target == PADDING_ID) | (target == BEGIN_ID) | (target == END_ID)
        wrong = length_mask(target_lengths, target.shape[1]) & (special | (target < 0) | (target >= words))
        if bool(wrong.any()):
            row, step = (int(index) for index in wrong.nonzero()[0])
            raise ValueError(
                f"target[{row}, {step}] is {int(target[row, step])}, but outputs hold token ids below {words} and none "
                f"of {PADDING_ID} (padding), {BEGIN_ID} (begin), {END_ID} (end). Leave begin and end to the head, and "
                "count padding out in target_lengths."
            )


def width_after(encoder: nn.Module | None, width: int) -> int:
    """The width of a head's input states once its encoder, if any, has read them."""
    if encoder is None:
        return width
    found = getattr(encoder, "width", None)
    if not isinstance(found, int):
        raise ValueError(
            f"encoder {type(encoder).__name__} must say the width of its states in an attribute `width`, an int; "
            f"found {found!r}."
        )
    return found
