"""The interface of all heads: score an output given (reordered) source states, and generate one token by token."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from permalign.checks import require_lengths, require_range, shape_of
from permalign.errors import UsageError
from permalign.heads.copying import CopySource
from permalign.masks import length_mask
from permalign.shapes import Bool, Float, Int
from permalign.structures import (
    Derivation,
    OrderDistribution,
    PrunedLikelihood,
    Segment,
    Transduction,
)
from permalign.text.batching import pad
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID

OwnHead = TypeVar("OwnHead", bound="Head")


class Decoder(ABC):
    """The partial outputs (prefixes) of one head, one per row, which grow by one token at a time.

    A beam search keeps several rows for each sentence. All scores are cumulative log-probabilities of whole prefixes.
    Where a head sums over alignments they are exact marginals, so that no two rows need to hold the same prefix.
    """

    @abstractmethod
    def scores(self) -> Float[Tensor, "rows vocab"]:
        """Return the log-probability of every prefix followed by each token; for END, that of the finished output."""

    @abstractmethod
    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        """Replace all rows: new row i is old row ``rows[i]`` followed by ``tokens[i]`` (never END)."""


class Head(nn.Module, ABC):
    """Writes an output from source states.

    Attributes:
        input_size: the size of the source states that the head reads.
        vocab_size: the size of the output vocabulary, special tokens included.
        preserves_length: whether every output is exactly as long as its source.
        copy_mechanism: whether the head may copy source words.
        copies: the source words that can be copied; see `with_copies`.
    """

    input_size: int
    vocab_size: int
    preserves_length: bool = False
    copy_mechanism: bool = False
    copies: CopySource | None = None

    def with_copies(self: OwnHead, copies: CopySource | None) -> OwnHead:
        """Return the head, with the same parameters, for a batch whose source words it can copy.

        Args:
            copies: the words of the batch that the head will be called with, one row for each row of its states. None
                for a head that does not copy.
        """
        if copies is None:
            return self
        bound = copy(self)
        bound.copies = copies
        return bound

    def max_output_length(self, source_length: int) -> int | None:
        """Return the length of the longest output the head can write for a source; None if there is no limit."""
        return source_length if self.preserves_length else None

    def search_limit(self, source_length: int, max_length: int | None) -> int:
        """Return the length at which a search gives up an output.

        Args:
            source_length: the length of the source.
            max_length: the limit set by the caller; None means ``2 * source_length + 10``. A head that preserves
                length ignores it.
        """
        limit = 2 * source_length + 10 if max_length is None else max_length
        possible = self.max_output_length(source_length)
        if possible is None:
            return limit
        return possible if self.preserves_length else min(limit, possible)

    def supports_lengths(
        self, source_lengths: Int[Tensor, " batch"], target_lengths: Int[Tensor, " batch"]
    ) -> Bool[Tensor, " batch"]:
        """Return for which pairs the head can write an output of the target's length."""
        supported = []
        for source, target in zip(source_lengths.tolist(), target_lengths.tolist(), strict=True):
            limit = self.max_output_length(source)
            fits = limit is None or (target == limit if self.preserves_length else target <= limit)
            supported.append(source > 0 and fits)
        return torch.tensor(supported, device=source_lengths.device)

    @abstractmethod
    def log_likelihood(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the exact log-likelihood of every output.

        With label smoothing, the log-probability of each token is interpolated with the mean over the vocabulary.

        Args:
            states: the reordered source states, padded.
            lengths: the lengths of the source sentences.
            target: the token ids of the outputs without BEGIN and END, padded.
            target_lengths: the lengths of the outputs.
            smoothing: the weight of the mean over the vocabulary; 0 gives the likelihood itself.
        """

    @abstractmethod
    def decoder(self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """Return a decoder with one row for each sentence, whose prefix is still empty."""

    def alignment_posteriors(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch cells m"] | None:
        """Return the posterior probability, given the output, that each cell wrote each token.

        Cells are the positions of the reordered source; a head may have one more at the end. Posteriors are 0 at
        padding, and None for a head without alignments.
        """
        return None

    def segments(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        order: Int[Tensor, "batch n"] | None,
    ) -> list[list[Segment]] | None:
        """Return the most probable alignment of source and output tokens; None for a head without alignments.

        Args:
            states: the reordered source states, padded.
            lengths: the lengths of the source sentences.
            target: the token ids of the outputs, padded.
            target_lengths: the lengths of the outputs.
            order: the source token at each position; None where the order is not discrete.
        """
        return None

    def log_likelihood_over_orders(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the exact log-likelihood of every output, summed over all orders of the source as well.

        Only heads whose tokens depend on one source state each can do so. Arguments are those of `log_likelihood`,
        except that ``states`` are in the original order of the source.
        """
        raise ValueError(
            f"{type(self).__name__} reads the whole reordered sentence, so its likelihood cannot be summed over all "
            "orders. Use a tagging or segments head, or a lower bound from samples."
        )

    def training_likelihood_over_orders(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> PrunedLikelihood:
        """Return `log_likelihood_over_orders` for training, where a head may leave out what is improbable."""
        pair = states, lengths, target, target_lengths
        return PrunedLikelihood.exact(self.log_likelihood_over_orders(distribution, *pair, smoothing))

    def cost_over_orders(self, source_length: int, target_length: int, num_labels: int) -> int:
        """Return about how many operations `log_likelihood_over_orders` takes for one pair; 0 if there is no such sum.

        Args:
            source_length: the length of the source.
            target_length: the length of the output.
            num_labels: how many labels the nodes of a tree may have; 1 for trees without labels.
        """
        return 0

    def derivations_over_orders(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> list[Transduction] | None:
        """Return the most probable derivation of every output among all orders; None if the head cannot find it."""
        return None

    def word_log_probs(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n vocab"]:
        """Return the log-probability of every word that a source token may write by itself; that of END is of none.

        Only heads can do so in which a token writes at most one word, which depends on nothing else that is written.
        """
        raise UsageError(
            f"the words of {type(self).__name__} depend on each other or on the order of the source, so outputs cannot "
            "be searched exactly. Use a segments head with max_segment_length=1, or beam search."
        )

    def phrase_derivations(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        count: int,
    ) -> list[list[Derivation]] | None:
        """Return the most probable trees a priori, whose leaves may be phrases; None for a head without phrases."""
        return None

    def leaf_states(
        self, states: Float[Tensor, "batch n input_size"], derivations: Sequence[Derivation]
    ) -> tuple[Float[Tensor, "batch leaves input_size"], Int[Tensor, " batch"]]:
        """Return the states of the leaves of each derivation, in the order it puts them, and how many there are."""
        orders = [derivation.order for derivation in derivations]
        order, lengths = (tensor.to(states.device) for tensor in pad(orders))
        return states.gather(1, order[..., None].expand(-1, -1, states.shape[2])), lengths

    def leaf_copies(self, copies: CopySource, derivations: Sequence[Derivation]) -> CopySource:
        """Return what the leaves of each derivation copy, in the order of `leaf_states`."""
        order, _ = pad([derivation.order for derivation in derivations])
        return copies.in_order(order.to(copies.ids.device))

    def require_states(self, states: Tensor, lengths: Tensor) -> None:
        """Require states ``(batch, n, input_size)`` of sentences that have at least one token."""
        if states.dim() != 3 or states.shape[2] != self.input_size:
            raise ValueError(
                f"states has shape {shape_of(states)}, but must be (batch, n, {self.input_size}): the head was built "
                f"with input_size={self.input_size}."
            )
        require_lengths("lengths", lengths, "states", states, states.shape[1])
        require_range("lengths", lengths, "states", states, states.shape[1])
        if self.copy_mechanism != (self.copies is not None):
            raise ValueError(
                "the head copies source words, but was not given any. Call head.with_copies(CopySource(ids)) first."
                if self.copies is None
                else "the head was given source words to copy, but was built without a copy mechanism."
            )
        if self.copies is not None and len(self.copies.ids) != len(states):
            raise ValueError(
                f"states has {len(states)} sentences, but the copies are those of {len(self.copies.ids)}."
            )

    def require_target(
        self, states: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float = 0.0
    ) -> None:
        """Require outputs ``(batch, m)`` of tokens that the head can write, and a label smoothing in [0, 1)."""
        if not 0 <= smoothing < 1:
            raise ValueError(f"smoothing is {smoothing}, but must lie in 0 <= smoothing < 1; 0 is none.")
        batch = states.shape[0]
        if target.dim() != 2 or target.shape[0] != batch or target.is_floating_point():
            raise ValueError(
                f"target has shape {shape_of(target)} and dtype {target.dtype}, but must be ({batch}, m) token ids: "
                "one output for every sentence in states."
            )
        require_lengths("target_lengths", target_lengths, "target", target, target.shape[1])
        require_range("target_lengths", target_lengths, "target", target, target.shape[1], minimum=0)
        special = (target == PADDING_ID) | (target == BEGIN_ID) | (target == END_ID)
        limit = self.vocab_size if self.copies is None else max(self.vocab_size, self.copies.num_ids)
        wrong = special | (target < 0) | (target >= limit)
        wrong = wrong & length_mask(target_lengths, target.shape[1])
        if bool(wrong.any()):
            row, step = (int(index) for index in wrong.nonzero()[0])
            raise ValueError(
                f"target[{row}, {step}] is {int(target[row, step])}, but outputs hold token ids below "
                f"{limit} and none of {PADDING_ID} (padding), {BEGIN_ID} (begin), {END_ID} (end). Leave "
                "begin and end to the head, and do not count padding in target_lengths."
            )


def encoded_size(encoder: nn.Module | None, input_size: int) -> int:
    """Return the size of states of ``input_size`` once a head's encoder, if any, has read them."""
    if encoder is None:
        return input_size
    size = getattr(encoder, "hidden_size", None)
    if not isinstance(size, int):
        raise ValueError(
            f"encoder {type(encoder).__name__} must give the size of its states as an int attribute `hidden_size`, "
            f"but that is {size!r}."
        )
    return size
