"""One output token for every source position."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.checks import require_at_least_one, require_dropout
from permalign.heads.base import Decoder, Head, encoded_size
from permalign.heads.copying import CopyGate, in_vocabulary, mix
from permalign.heads.softmax.output import OutputSoftmax
from permalign.kernels.layout import span_count, split_count
from permalign.masks import length_mask, padding_mask
from permalign.shapes import Float, Int
from permalign.structures import OrderDistribution, Segment
from permalign.structures.log_space import LOG_ZERO, minus_infinity_below
from permalign.text.codec import END_ID, UNKNOWN_ID


class TaggingHead(Head):
    """Writes one token for each (reordered) source state: ``p(y) = prod_p softmax(W h_p + b)[y_p]``.

    Tokens are independent given the states, which is what lets a reorderer sum over all orders exactly: see
    `target_emissions`. Without an encoder, an output token depends only on the source token at its position.

    Args:
        input_size: the size of the source states.
        vocab_size: the size of the output vocabulary, special tokens included.
        dropout: dropout on the input of the softmax.
        num_negatives: in training, how many tokens are drawn for each batch to stand for those that are not in it (a
            sampled softmax, see `SampledVocabulary`); None for the whole vocabulary.
        copy_mechanism: whether cells may copy their source words; see `permalign.heads.copying.CopyGate`.
        encoder: a module that reads the states first, called with states and lengths; None for no encoder.

    >>> head = TaggingHead(input_size=8, vocab_size=10).eval()
    >>> states, lengths = torch.randn(1, 2, 8), torch.tensor([2])
    >>> head.log_likelihood(states, lengths, torch.tensor([[5, 7]]), torch.tensor([2])).shape
    torch.Size([1])
    """

    preserves_length = True

    def __init__(
        self,
        *,
        input_size: int,
        vocab_size: int,
        dropout: float = 0.0,
        num_negatives: int | None = None,
        copy_mechanism: bool = False,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size)
        require_dropout(dropout)
        self.input_size, self.vocab_size = input_size, vocab_size
        self.encoder = encoder
        self.dropout = nn.Dropout(dropout)
        self.softmax = OutputSoftmax(
            encoded_size(encoder, input_size), vocab_size, with_end=False, num_negatives=num_negatives
        )
        self.copy_mechanism = copy_mechanism
        self.copy_gate = CopyGate(encoded_size(encoder, input_size)) if copy_mechanism else None

    def _features(self, states: Tensor, lengths: Tensor) -> Tensor:
        self.require_states(states, lengths)
        features: Tensor = self.dropout(states if self.encoder is None else self.encoder(states, lengths))
        return features  # (batch, n, encoded size)

    def emissions(
        self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch n vocab"]:
        """Return the log-probabilities of all tokens at every position; ignore those at padding.

        With a copy mechanism, tokens beyond the vocabulary are the unknown words of the sentence.
        """
        features = self._features(states, lengths)
        log_probs: Tensor = self.softmax(features)
        if self.copy_gate is None or self.copies is None:
            return log_probs
        keep, copy = self.copy_gate(features, self.copies.shares(features))
        size = max(self.vocab_size, self.copies.num_ids)
        log_probs = functional.pad(log_probs, (0, size - self.vocab_size), value=-torch.inf)
        copied = self.copies.over_vocabulary(features.shape[1], size, features.dtype)
        mixed = mix(keep[..., None], log_probs, copy[..., None], copied)
        return mixed.masked_fill(mixed < LOG_ZERO / 2, -torch.inf)

    def target_emissions(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "batch token position"]:
        """Return ``e(i, p) = log p(y_p | token i)``, for `permalign.SeparablePermutation.log_likelihood`. O(n V + n^2).

        Arguments are those of `log_likelihood`, with states in the original order. Entries at padding are finite but
        otherwise arbitrary.
        """
        target = self._padded_target(states, lengths, target, target_lengths, smoothing)
        features = self._features(states, lengths)
        known = in_vocabulary(target, self.vocab_size)[:, None].expand(-1, states.shape[1], -1)
        log_probs = self.softmax.log_probs(features, known, smoothing)  # (batch, token, position)
        if self.copy_gate is None or self.copies is None:
            return log_probs
        keep, copy = self.copy_gate(features, self.copies.shares(features))
        copied = self.copies.log_probs(target, features.shape[1], features.dtype)
        beyond = (target >= self.vocab_size)[:, None]
        return mix(keep[..., None], log_probs, copy[..., None], copied, beyond)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the sum of the log-probabilities of all tokens, each at its own position."""
        if self.copies is not None:
            emissions = self.target_emissions(states, lengths, target, target_lengths, smoothing)
            own = emissions.diagonal(dim1=1, dim2=2).masked_fill(padding_mask(lengths, states.shape[1]), 0.0)
            return minus_infinity_below(own.sum(1), own.sum(1))
        target = self._padded_target(states, lengths, target, target_lengths, smoothing)
        return self.softmax.sentence_log_prob(self._features(states, lengths), target, lengths, smoothing)

    def log_likelihood_over_orders(
        self,
        distribution: OrderDistribution,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the log-probability of every output, summed over all orders of the source."""
        return distribution.log_likelihood(
            self.target_emissions(states, lengths, target, target_lengths, smoothing)
        )

    def cost_over_orders(self, source_length: int, target_length: int, num_labels: int) -> int:
        """Return the number of pairs of children in all cells of the chart: O(n^4 K^2 + n^3 K^3)."""
        splits, spans = split_count(source_length), span_count(source_length)
        return 2 * source_length * (splits * num_labels**2 + spans * num_labels**3)

    def _padded_target(
        self, states: Tensor, lengths: Tensor, target: Tensor, target_lengths: Tensor, smoothing: float
    ) -> Tensor:
        """Check the outputs, and pad them to the length of the states with unknown tokens, whose logits are finite."""
        self.require_target(states, target, target_lengths, smoothing)
        different = lengths != target_lengths
        if bool(different.any()):
            pair = int(different.nonzero()[0])
            raise ValueError(
                f"pair {pair} has {int(lengths[pair])} source tokens and {int(target_lengths[pair])} output tokens, "
                "but a tagging head writes one token for each source token; use ssnt."
            )
        n = states.shape[1]
        padded = functional.pad(target, (0, n - target.shape[1])).long()
        return padded.masked_fill(padding_mask(lengths, n), UNKNOWN_ID)

    def decoder(self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """Return a decoder that has computed the scores of all positions and only looks them up."""
        return _TaggingDecoder(self.emissions(states, lengths), lengths)

    def segments(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        order: Int[Tensor, "batch n"] | None,
    ) -> list[list[Segment]] | None:
        """Return a segment of one source and one output token per position; None if the order is not discrete."""
        if order is None:
            return None
        self._padded_target(states, lengths, target, target_lengths, smoothing=0.0)
        return [
            [Segment((token,), (position,)) for position, token in enumerate(tokens[:length])]
            for tokens, length in zip(order.tolist(), lengths.tolist(), strict=True)
        ]

    def alignment_posteriors(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch cells m"]:
        """Return an identity matrix per sentence: given the order, every position writes its own token."""
        self._padded_target(states, lengths, target, target_lengths, smoothing=0.0)
        identity = torch.eye(states.shape[1], target.shape[1], device=states.device, dtype=states.dtype)
        return identity * length_mask(lengths, states.shape[1])[:, :, None]


class _TaggingDecoder(Decoder):
    """Rows are a sentence, a position in it, and the log-probability of the tokens before that position."""

    def __init__(self, emissions: Tensor, lengths: Tensor) -> None:
        batch, _, vocab_size = emissions.shape
        # one more position, where only END can be written
        only_end = emissions.new_full((vocab_size,), -torch.inf)
        only_end[END_ID] = 0.0
        self._sentences = torch.arange(batch, device=lengths.device)
        self._emissions = functional.pad(emissions, (0, 0, 0, 1)).index_put(
            (self._sentences, lengths.long()), only_end.expand(batch, -1)
        )  # (batch, n + 1, vocab)
        self._positions = torch.zeros_like(self._sentences)
        self._totals = emissions.new_zeros(batch)

    def scores(self) -> Float[Tensor, "rows vocab"]:
        return self._totals[:, None] + self._emissions[self._sentences, self._positions]

    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        sentences, positions = self._sentences[rows], self._positions[rows]
        self._totals = self._totals[rows] + self._emissions[sentences, positions, tokens]
        # a row that continues past its end has probability zero, whatever its position
        self._positions = (positions + 1).clamp(max=self._emissions.shape[1] - 1)
        self._sentences = sentences
