"""A word for every source position."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.checks import require_at_least_one, require_dropout
from permalign.heads.base import Decoder, Head, width_after
from permalign.heads.softmax.output import OutputSoftmax
from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.structures import LabelledPermutation, Segment, SeparablePermutation
from permalign.text.codec import END_ID, UNKNOWN_ID


class TaggingHead(Head):
    """Writes one word for each (reordered) source state: ``p(y) = prod_p softmax(W h_p + b)[y_p]``.

    Words are independent given the states, which is what lets a reorderer sum over all orders exactly: see
    `target_emissions`. Without an encoder a word depends on the one token at its position alone.

    Args:
        width: of the states it reads.
        words: size of the output vocabulary, with its special words.
        dropout: of what the softmax reads.
        encoder: what reads the states first, if anything: called with states and lengths, its ``width`` an int.

    >>> head = TaggingHead(width=8, words=10).eval()
    >>> states, lengths = torch.randn(1, 2, 8), torch.tensor([2])
    >>> head.log_likelihood(states, lengths, torch.tensor([[5, 7]]), torch.tensor([2])).shape
    torch.Size([1])
    """

    same_length = True

    def __init__(
        self, *, width: int, words: int, dropout: float = 0.0, encoder: nn.Module | None = None
    ) -> None:
        super().__init__()
        require_at_least_one(width=width)
        require_dropout(dropout)
        self.width, self.words = width, words
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.softmax = OutputSoftmax(width_after(encoder, width), words, with_end=False)

    def _features(self, states: Tensor, lengths: Tensor) -> Tensor:
        self.require_states(states, lengths)
        read = states if self.encoder is None else self.encoder(states, lengths)
        features: Tensor = self.dropout(read)
        return features  # (batch, n, encoder width)

    def emissions(
        self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n words"]:
        """Log-probabilities of all words at every position; those after a sentence's end mean nothing."""
        log_probs: Tensor = self.softmax(self._features(states, lengths))
        return log_probs

    def target_emissions(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "batch token position"]:
        """``e(i, p) = log p(y_p | token i)``, for `permalign.SeparablePermutation.log_likelihood`. O(n V + n^2).

        Arguments are those of `log_likelihood`, with states in the original order. Entries in padding mean nothing
        but are finite.
        """
        target = self._aligned_target(states, lengths, target, target_lengths, smoothing)
        each = target[:, None].expand(-1, states.shape[1], -1)  # (batch, token, position)
        return self.softmax.log_probs(self._features(states, lengths), each, smoothing)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The sum of the words' log-probabilities, each at its own position."""
        target = self._aligned_target(states, lengths, target, target_lengths, smoothing)
        return self.softmax.sentence_log_prob(self._features(states, lengths), target, lengths, smoothing)

    def log_likelihood_over_orders(
        self,
        distribution: SeparablePermutation | LabelledPermutation,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The sum over all orders, each with its words at their positions."""
        return distribution.log_likelihood(
            self.target_emissions(states, lengths, target, target_lengths, smoothing)
        )

    def _aligned_target(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float
    ) -> Tensor:
        """The outputs, checked, and as wide as the states; after the last word come unknown ones, which are finite."""
        self.require_target(states, target, target_lengths, smoothing)
        different = lengths != target_lengths
        if bool(different.any()):
            pair = int(different.nonzero()[0])
            raise ValueError(
                f"pair {pair} has {int(lengths[pair])} source words and {int(target_lengths[pair])} output words, "
                "but a tagging head writes one word for each source word; use ssnt."
            )
        n = states.shape[1]
        fitted = functional.pad(target, (0, n - target.shape[1])).long()
        return fitted.masked_fill(~length_mask(lengths, n), UNKNOWN_ID)

    def decoder(self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """One row for each sentence; its words are known at once, so that a step only looks them up."""
        return _TaggingDecoder(self.emissions(states, lengths), lengths)

    def segments(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        order: Int[Tensor, "batch n"] | None,
    ) -> list[list[Segment]] | None:
        """A segment for every position: its token and its word. None where the order is not discrete."""
        if order is None:
            return None
        self._aligned_target(states, lengths, target, target_lengths, smoothing=0.0)
        return [
            [Segment((token,), (position,)) for position, token in enumerate(tokens[:length])]
            for tokens, length in zip(order.tolist(), lengths.tolist(), strict=True)
        ]

    def alignment_posteriors(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch cells m"]:
        """Given the order there is no doubt: every position writes its own word."""
        self._aligned_target(states, lengths, target, target_lengths, smoothing=0.0)
        own = torch.eye(states.shape[1], target.shape[1], device=states.device, dtype=states.dtype)
        return own * length_mask(lengths, states.shape[1])[:, :, None]


class _TaggingDecoder(Decoder):
    """Rows are a sentence, a position in it and the log-probability of the words before it."""

    def __init__(self, emissions: Tensor, lengths: Tensor) -> None:
        batch, _, words = emissions.shape
        # one more position, where all that is left is to end
        only_end = emissions.new_full((words,), -torch.inf)
        only_end[END_ID] = 0.0
        self._sentences = torch.arange(batch, device=lengths.device)
        self._emissions = functional.pad(emissions, (0, 0, 0, 1)).index_put(
            (self._sentences, lengths.long()), only_end.expand(batch, -1)
        )  # (batch, n + 1, words)
        self._positions = torch.zeros_like(self._sentences)
        self._totals = emissions.new_zeros(batch)

    def scores(self) -> Float[Tensor, "rows words"]:
        return self._totals[:, None] + self._emissions[self._sentences, self._positions]

    def extend(self, rows: Int[Tensor, " new"], words: Int[Tensor, " new"]) -> None:
        sentences, positions = self._sentences[rows], self._positions[rows]
        self._totals = self._totals[rows] + self._emissions[sentences, positions, words]
        # a row that goes on after its end has probability zero, wherever it stands
        self._positions = (positions + 1).clamp(max=self._emissions.shape[1] - 1)
        self._sentences = sentences
