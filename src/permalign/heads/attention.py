"""An LSTM decoder that attends to the source at every step."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.checks import require_at_least_one, require_dropout
from permalign.heads.base import Decoder, Head, encoded_size
from permalign.heads.lstm_attention import (
    LstmStack,
    State,
    attention_weights,
    padding_bias,
    select,
    top,
    weighted_sum,
)
from permalign.heads.softmax.output import OutputSoftmax, with_end
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID


@dataclass(frozen=True)
class _Source:
    """The source as every step reads it, projected once: keys ``W_a h_i``, values ``W_c h_i``, -inf at padding."""

    keys: Tensor
    values: Tensor
    bias: Tensor

    def select(self, rows: Tensor) -> "_Source":
        return _Source(self.keys[rows], self.values[rows], self.bias[rows])


class AttentionHead(Head):
    """An LSTM decoder with attention as in Luong, Pham and Manning (2015): "general" scores, input feeding.

    With source states ``h_i`` (the encoder's, over the reordered input) and embeddings ``E`` of output tokens, a step
    is

        s_j     = LSTM([E(y_{j-1}) ; a_{j-1}], s_{j-1})
        weights = softmax_i(s_j . W_a h_i)
        a_j     = tanh(W_c sum_i weights_i h_i + W_s s_j + b)
        p(y_j)  = softmax(W a_j + b)

    from ``a_0 = 0`` until END is written. ``W_a h`` and ``W_c h`` are computed once per sentence (a mean of projections
    is the projection of the mean), and embeddings and softmax for all steps at once: a step of training is one cell,
    two products with the source and one square layer. O(n m hidden_size + m (hidden_size^2 + V hidden_size)) time.

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
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(
            input_size=input_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
        )
        require_dropout(dropout)
        self.input_size, self.vocab_size, self.hidden_size = input_size, vocab_size, hidden_size
        self.encoder = encoder
        source_size = encoded_size(encoder, input_size)
        self.embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.dropout = nn.Dropout(dropout)
        self.stack = LstmStack(
            input_size=embedding_dim + hidden_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            source_size=source_size,
        )
        self.keys = nn.Linear(source_size, hidden_size, bias=False)  # W_a
        self.values = nn.Linear(source_size, hidden_size, bias=False)  # W_c
        self.combine = nn.Linear(hidden_size, hidden_size)  # W_s and b
        self.softmax = OutputSoftmax(hidden_size, vocab_size, True, num_negatives)

    def _encode(self, states: Tensor, lengths: Tensor) -> tuple[_Source, State]:
        """Return the source as every step reads it, and the initial state of the decoder."""
        self.require_states(states, lengths)
        encoded = states if self.encoder is None else self.encoder(states, lengths)
        source = _Source(self.keys(encoded), self.values(encoded), padding_bias(lengths, encoded))
        return source, self.stack.initial_state(encoded, lengths)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embeddings(tokens))
        return embedded

    def _step(
        self, source: _Source, state: State, attended: Tensor, embedded: Tensor
    ) -> tuple[State, Tensor]:
        """Return ``s_j`` and ``a_j`` of all rows, from those of the previous step and the embedded token between."""
        state = self.stack(torch.cat([embedded, attended], dim=-1), state)
        weights = attention_weights(top(state), source.keys, source.bias)  # (rows, n)
        attended = (weighted_sum(weights, source.values) + self.combine(top(state))).tanh()
        return state, attended  # attended: (rows, hidden_size)

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
        source, state = self._encode(states, lengths)
        target = target[:, : int(target_lengths.max())]
        inputs = functional.pad(target, (1, 0), value=BEGIN_ID)  # (batch, steps)
        attended = states.new_zeros(states.shape[0], self.hidden_size)
        features = []
        for embedded in self._embed(inputs).unbind(1):
            state, attended = self._step(source, state, attended, embedded)
            features.append(attended)
        dropped = self.dropout(torch.stack(features, dim=1))  # (batch, steps, hidden_size)
        outputs = with_end(target, target_lengths)
        return self.softmax.sentence_log_prob(dropped, outputs, target_lengths + 1, smoothing)

    def decoder(self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """Return a decoder whose rows share the source of their sentence."""
        return _AttentionDecoder(self, *self._encode(states, lengths))


class _AttentionDecoder(Decoder):
    """Rows are a sentence, the states of the network after the prefix, and the log-probability of the prefix."""

    def __init__(self, head: AttentionHead, source: _Source, state: State) -> None:
        batch = source.keys.shape[0]
        self._head = head
        self._source = self._source_of_rows = source
        self._sentences = torch.arange(batch, device=source.keys.device)
        self._state = state
        self._attended = source.keys.new_zeros(batch, head.hidden_size)
        self._advance(torch.full_like(self._sentences, BEGIN_ID), source.keys.new_zeros(batch))

    def _advance(self, tokens: Tensor, totals: Tensor) -> None:
        """Read the last tokens of all rows and score what may come next."""
        head = self._head
        self._state, self._attended = head._step(
            self._source_of_rows, self._state, self._attended, head._embed(tokens)
        )
        log_probs: Tensor = head.softmax(head.dropout(self._attended))
        self._scores = totals[:, None] + log_probs

    def scores(self) -> Float[Tensor, "rows vocab"]:
        return self._scores

    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        sentences = self._sentences[rows]
        if not torch.equal(sentences, self._sentences):  # they seldom change in a beam: avoid the copy
            self._sentences = sentences
            self._source_of_rows = self._source.select(sentences)
        self._state, self._attended = select(self._state, rows), self._attended[rows]
        self._advance(tokens, self._scores[rows, tokens])
