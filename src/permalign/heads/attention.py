"""An LSTM decoder that attends to the source at every step."""

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one
from permalign.heads.base import Decoder, Head, encoded_size
from permalign.heads.copying import CopyGate, CopySource, in_vocabulary, mix
from permalign.heads.input_feeding import Cache, InputFeedingContext, weights_of
from permalign.heads.softmax.output import OutputSoftmax, with_end
from permalign.heads.source_attention import AttendedSource
from permalign.masks import padding_mask
from permalign.shapes import Float, Int
from permalign.structures.log_space import LOG_ZERO, minus_infinity_below
from permalign.text.codec import PADDING_ID, UNKNOWN_ID


class AttentionHead(Head):
    """An LSTM decoder with attention as in Luong, Pham and Manning (2015): "general" scores, input feeding.

    The states ``a_j`` of an `InputFeedingContext` over the source states (the encoder's, over the reordered input)
    predict one token after the other, until END is written:

        p(y_j) = softmax(W a_j + b)

    The softmax is computed for all steps at once. O(n m hidden_size + m (hidden_size^2 + V hidden_size)) time.

    Args:
        input_size: the size of the source states.
        vocab_size: the size of the output vocabulary, special tokens included.
        embedding_dim: the size of the embeddings of output tokens.
        hidden_size: the size of the states of the decoder.
        num_layers: the number of LSTM layers of the decoder.
        dropout: dropout on embeddings, between layers, and on the input of the softmax (but not on what is fed to the
            next step).
        num_negatives: in training, how many tokens are drawn for each batch to stand for those that are not in it (a
            sampled softmax, see `SampledVocabulary`); None for the whole vocabulary.
        scaled_attention: whether the scores of attention are divided by the square root of ``hidden_size``.
        copy_mechanism: whether a step may copy the source words it attends to, in proportion to their weights (a
            pointer network); see `permalign.heads.copying.CopyGate`.
        encoder: a module that reads the states first, called with states and lengths; None for no encoder.

    >>> head = AttentionHead(input_size=8, vocab_size=10, embedding_dim=4, hidden_size=6).eval()
    >>> states, lengths = torch.randn(1, 2, 8), torch.tensor([2])
    >>> empty = head.log_likelihood(states, lengths, torch.tensor([[0]]), torch.tensor([0]))
    >>> torch.allclose(empty, head.decoder(states, lengths).scores()[:, 3])  # END
    True
    """

    def __init__(
        self,
        *,
        input_size: int,
        vocab_size: int,
        embedding_dim: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        num_negatives: int | None = None,
        scaled_attention: bool = False,
        copy_mechanism: bool = False,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size)
        self.input_size, self.vocab_size = input_size, vocab_size
        self.encoder = encoder
        self.context = InputFeedingContext(
            source_size=encoded_size(encoder, input_size),
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            scaled_attention=scaled_attention,
        )
        self.softmax = OutputSoftmax(hidden_size, vocab_size, True, num_negatives)
        self.copy_mechanism = copy_mechanism
        self.copy_gate = CopyGate(hidden_size) if copy_mechanism else None

    def _read(self, states: Tensor, lengths: Tensor) -> AttendedSource:
        """Return the source as every step reads it."""
        self.require_states(states, lengths)
        encoded = states if self.encoder is None else self.encoder(states, lengths)
        return self.context.project(encoded, lengths)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the sum of the log-probabilities of all tokens and of END, each given its predecessors."""
        self.require_target(states, target, target_lengths, smoothing)
        source = self._read(states, lengths)
        target = target[:, : int(target_lengths.max())]
        outputs = with_end(target, target_lengths)
        if self.copies is None:
            features = self.context(target, source)  # (batch, steps, hidden_size)
            return self.softmax.sentence_log_prob(features, outputs, target_lengths + 1, smoothing)
        features, weights = self.context.with_weights(target, source)
        log_probs = self._log_probs_with_copies(features, weights, outputs, smoothing)
        total = log_probs.masked_fill(padding_mask(target_lengths + 1, log_probs.shape[1]), 0.0).sum(1)
        return minus_infinity_below(total, total)

    def _log_probs_with_copies(
        self,
        features: Float[Tensor, "batch steps hidden_size"],
        weights: Float[Tensor, "batch steps n"],
        tokens: Int[Tensor, "batch steps"],
        smoothing: float,
    ) -> Float[Tensor, "batch steps"]:
        """Return the log-probability of each step's token; smoothing leaves out what is copied."""
        assert self.copy_gate is not None
        tokens = tokens.masked_fill(tokens == PADDING_ID, UNKNOWN_ID)  # whose logits are finite
        pointers = self.pointers(weights)
        keep, copy = self.copy_gate(features, pointers.shares(features))
        log_probs = self.softmax.log_prob(features, in_vocabulary(tokens, self.vocab_size), smoothing)
        copied = pointers.log_probs(tokens, tokens.shape[1], features.dtype).diagonal(dim1=1, dim2=2)
        return mix(keep, log_probs, copy, copied, tokens >= self.vocab_size)

    def pointers(self, weights: Float[Tensor, "batch steps n"]) -> CopySource:
        """Return what each step copies: a mixture of the tokens that it attends to."""
        assert self.copies is not None
        matrix = self.copies.matrix
        return self.copies.with_matrix(weights if matrix is None else weights @ matrix)

    def decoder(self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """Return a decoder whose rows share the source of their sentence."""
        return _AttentionDecoder(self, self._read(states, lengths))


class _AttentionDecoder(Decoder):
    """Rows are a sentence, the states of the network after the prefix, and the log-probability of the prefix."""

    def __init__(self, head: AttentionHead, source: AttendedSource) -> None:
        batch, device = len(source.keys), source.keys.device
        self._head = head
        self._source = self._source_of_rows = source
        self._sentences = torch.arange(batch, device=device)
        self._score(*head.context.begin(batch, device, source), source.keys.new_zeros(batch))

    def _score(self, features: Tensor, cache: Cache, totals: Tensor) -> None:
        """Score what may come next, given the states of all rows."""
        head, self._cache = self._head, cache
        log_probs: Tensor = head.softmax(features)
        if head.copy_gate is not None and head.copies is not None:
            copies = head.copies.select(self._sentences)
            pointers = head.with_copies(copies).pointers(weights_of(cache)[:, None])
            keep, copy = head.copy_gate(features, pointers.shares(features[:, None]).squeeze(1))
            log_probs = pointers.add_to((keep[:, None] + log_probs)[:, None], copy[:, None, None]).squeeze(1)
            log_probs = log_probs.masked_fill(log_probs < LOG_ZERO / 2, -torch.inf)
        self._scores = totals[:, None] + log_probs

    def scores(self) -> Float[Tensor, "rows vocab"]:
        return self._scores

    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        sentences = self._sentences[rows]
        if not torch.equal(sentences, self._sentences):  # they seldom change in a beam: avoid the copy
            self._sentences = sentences
            self._source_of_rows = self._source.select(sentences)
        totals = self._scores[rows, tokens]
        states = self._head.context.advance(self._cache, rows, tokens, self._source_of_rows)
        self._score(*states, totals)
