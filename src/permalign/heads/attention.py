"""A decoder that attends to the source at every step."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.checks import require_at_least_one, require_dropout
from permalign.heads.base import Decoder, Head, width_after
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
    """What a step reads of the source, projected once: keys ``W_a h_i``, values ``W_c h_i``, -inf at padding."""

    keys: Tensor
    values: Tensor
    bias: Tensor

    def select(self, rows: Tensor) -> "_Source":
        return _Source(self.keys[rows], self.values[rows], self.bias[rows])


class AttentionHead(Head):
    """An LSTM decoder with attention as in Luong, Pham and Manning (2015): "general" scores, input feeding.

    With source states ``h_i`` (the encoder's, over the reordered input) and embeddings ``E`` of output words, a step
    is

        s_j     = LSTM([E(y_{j-1}) ; a_{j-1}], s_{j-1})
        weights = softmax_i(s_j . W_a h_i)
        a_j     = tanh(W_c sum_i weights_i h_i + W_s s_j + b)
        p(y_j)  = softmax(W a_j + b)

    from ``a_0 = 0`` until the end is written. ``W_a h`` and ``W_c h`` are made once for a sentence (a mean of
    projections is the projection of the mean), words are embedded all at once, and so is the softmax: a step of the
    training pass is one cell, two products with the source and one square layer. O(n m hidden + m (hidden^2 + V
    hidden)) time.

    Args:
        width: of the states it reads.
        words: size of the output vocabulary, with its special words.
        embedding: width of the embeddings of output words.
        hidden: width of the decoder.
        layers: LSTM layers of the decoder.
        dropout: of embedded words, between layers, and of what the softmax reads (what is fed to the next step is
            not dropped).
        encoder: what reads the states first, if anything: called with states and lengths, its ``width`` an int.

    >>> head = AttentionHead(width=8, words=10, embedding=4, hidden=6).eval()
    >>> states, lengths = torch.randn(1, 2, 8), torch.tensor([2])
    >>> empty = head.log_likelihood(states, lengths, torch.tensor([[0]]), torch.tensor([0]))
    >>> torch.allclose(empty, head.decoder(states, lengths).scores()[:, 3])  # the end
    True
    """

    def __init__(
        self,
        *,
        width: int,
        words: int,
        embedding: int,
        hidden: int,
        layers: int = 1,
        dropout: float = 0.0,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(width=width, embedding=embedding, hidden=hidden, layers=layers)
        require_dropout(dropout)
        self.width, self.words, self.hidden = width, words, hidden
        self.encoder = encoder
        source_width = width_after(encoder, width)
        self.embeddings = nn.Embedding(words, embedding)
        self.dropout = nn.Dropout(dropout)
        self.stack = LstmStack(
            width=embedding + hidden,
            hidden=hidden,
            layers=layers,
            dropout=dropout,
            source_width=source_width,
        )
        self.keys = nn.Linear(source_width, hidden, bias=False)  # W_a
        self.values = nn.Linear(source_width, hidden, bias=False)  # W_c
        self.combine = nn.Linear(hidden, hidden)  # W_s and b
        self.softmax = OutputSoftmax(hidden, words, with_end=True)

    def _read(self, states: Tensor, lengths: Tensor) -> tuple[_Source, State]:
        """The source as steps see it, and the decoder's first state."""
        self.require_states(states, lengths)
        read = states if self.encoder is None else self.encoder(states, lengths)
        source = _Source(self.keys(read), self.values(read), padding_bias(lengths, read))
        return source, self.stack.begin(read, lengths)

    def _embed(self, words: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embeddings(words))
        return embedded

    def _step(
        self, source: _Source, state: State, attended: Tensor, embedded: Tensor
    ) -> tuple[State, Tensor]:
        """``s_j`` and ``a_j`` of all rows, from those of the step before and the embedded word between."""
        state = self.stack(torch.cat([embedded, attended], dim=-1), state)
        weights = attention_weights(top(state), source.keys, source.bias)  # (rows, n)
        attended = (weighted_sum(weights, source.values) + self.combine(top(state))).tanh()
        return state, attended  # attended: (rows, hidden)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The sum of the log-probabilities of all words and of the end, each given those before it."""
        self.require_target(states, target, target_lengths, smoothing)
        source, state = self._read(states, lengths)
        longest = int(target_lengths.max())
        before = functional.pad(target[:, :longest], (1, 0), value=BEGIN_ID)  # (batch, steps)
        attended = states.new_zeros(states.shape[0], self.hidden)
        features = []
        for embedded in self._embed(before).unbind(1):
            state, attended = self._step(source, state, attended, embedded)
            features.append(attended)
        read = self.dropout(torch.stack(features, dim=1))  # (batch, steps, hidden)
        written = with_end(target[:, :longest], target_lengths)
        return self.softmax.sentence_log_prob(read, written, target_lengths + 1, smoothing)

    def decoder(self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """One row for each sentence, with nothing written yet; rows share the source of their sentence."""
        return _AttentionDecoder(self, *self._read(states, lengths))


class _AttentionDecoder(Decoder):
    """Rows are a sentence, the states of the network after its prefix, and the prefix's log-probability."""

    def __init__(self, head: AttentionHead, source: _Source, state: State) -> None:
        batch = source.keys.shape[0]
        self._head = head
        self._source = self._source_of_rows = source
        self._sentences = torch.arange(batch, device=source.keys.device)
        self._state = state
        self._attended = source.keys.new_zeros(batch, head.hidden)
        self._advance(torch.full_like(self._sentences, BEGIN_ID), source.keys.new_zeros(batch))

    def _advance(self, words: Tensor, totals: Tensor) -> None:
        """Read the last words of all rows and score what may come next."""
        head = self._head
        self._state, self._attended = head._step(
            self._source_of_rows, self._state, self._attended, head._embed(words)
        )
        log_probs: Tensor = head.softmax(head.dropout(self._attended))
        self._scores = totals[:, None] + log_probs

    def scores(self) -> Float[Tensor, "rows words"]:
        return self._scores

    def extend(self, rows: Int[Tensor, " new"], words: Int[Tensor, " new"]) -> None:
        sentences = self._sentences[rows]
        if not torch.equal(sentences, self._sentences):  # in a beam they seldom change: spare the copy
            self._sentences = sentences
            self._source_of_rows = self._source.select(sentences)
        self._state, self._attended = select(self._state, rows), self._attended[rows]
        self._advance(words, self._scores[rows, words])
