"""A decoder whose attention depends on syntax only, and whose tokens depend on meaning only."""

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
    top,
    weighted_sum,
)
from permalign.heads.softmax.output import OutputSoftmax, with_end
from permalign.shapes import Float, Int


@dataclass(frozen=True)
class _Streams:
    """The source as every step reads it: keys ``W_a h_i``, syntax ``h_i``, meanings ``W_m x_i``, -inf at padding."""

    keys: Tensor
    syntax: Tensor
    meanings: Tensor
    bias: Tensor


class SyntacticAttentionHead(Head):
    """Two streams that meet only in the attention weights (Russin et al., 2019).

    The syntax ``h_i`` of a token is what the encoder makes of the reordered states ``x_i``; its meaning
    ``m_i = W_m x_i`` has no context. A learned end token, whose meaning is to stop, is appended to every sentence. A
    step is

        weights = softmax_i(s_j . W_a h_i)
        p(y_j)  = softmax(W sum_i weights_i m_i + b)
        s_{j+1} = LSTM(sum_i weights_i h_i, s_j)

    Where to look next depends on syntax only, not even on the tokens written (they carry meaning). So output tokens are
    independent given the source, and a beam computes each step once for all its rows.

    Args:
        input_size: the size of the source states.
        vocab_size: the size of the output vocabulary, special tokens included.
        hidden_size: the size of the states of the decoder, and of meanings.
        num_layers: the number of LSTM layers of the decoder.
        dropout: dropout on meanings and between layers.
        num_negatives: in training, how many tokens are drawn for each batch to stand for those that are not in it (a
            sampled softmax, see `SampledVocabulary`); None for the whole vocabulary.
        encoder: a module that reads the states first, called with states and lengths. With None, the syntax of a token
            has no more context than its state.

    >>> head = SyntacticAttentionHead(input_size=8, vocab_size=10, hidden_size=6).eval()
    >>> states, lengths = torch.randn(1, 2, 8), torch.tensor([2])
    >>> torch.allclose(head.decoder(states, lengths).scores().exp().sum(), torch.ones(()))
    True
    """

    def __init__(
        self,
        *,
        input_size: int,
        vocab_size: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        num_negatives: int | None = None,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        require_dropout(dropout)
        self.input_size, self.vocab_size = input_size, vocab_size
        self.encoder = encoder
        syntax_size = encoded_size(encoder, input_size)
        self.end = nn.Parameter(torch.randn(input_size))
        self.stack = LstmStack(
            input_size=syntax_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            source_size=syntax_size,
        )
        self.keys = nn.Linear(syntax_size, hidden_size, bias=False)  # W_a
        self.meanings = nn.Linear(input_size, hidden_size)  # W_m
        self.dropout = nn.Dropout(dropout)
        self.softmax = OutputSoftmax(hidden_size, vocab_size, True, num_negatives)

    def _encode(self, states: Tensor, lengths: Tensor) -> tuple[_Streams, State]:
        """Return both streams, with the end appended, and the initial state of the decoder."""
        self.require_states(states, lengths)
        sentence = torch.arange(states.shape[0], device=states.device)
        ended = functional.pad(states, (0, 0, 0, 1))  # (batch, n + 1, input_size)
        ended = ended.index_put((sentence, lengths.long()), self.end.expand(states.shape[0], -1))
        lengths = lengths + 1
        syntax = ended if self.encoder is None else self.encoder(ended, lengths)
        meanings = self.dropout(self.meanings(ended))
        streams = _Streams(self.keys(syntax), syntax, meanings, padding_bias(lengths, syntax))
        return streams, self.stack.initial_state(syntax, lengths)

    def _step(self, streams: _Streams, state: State) -> tuple[Tensor, State]:
        """Return the meaning to be written now, ``(batch, hidden_size)``, and the next state."""
        weights = attention_weights(top(state), streams.keys, streams.bias)  # (batch, n + 1)
        meaning = weighted_sum(weights, streams.meanings)
        return meaning, self.stack(weighted_sum(weights, streams.syntax), state)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n input_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Return the sum of the log-probabilities of all tokens and of END."""
        self.require_target(states, target, target_lengths, smoothing)
        streams, state = self._encode(states, lengths)
        target = target[:, : int(target_lengths.max())]
        features = []
        for _ in range(target.shape[1] + 1):
            meaning, state = self._step(streams, state)
            features.append(meaning)
        outputs = with_end(target, target_lengths)
        return self.softmax.sentence_log_prob(
            torch.stack(features, dim=1), outputs, target_lengths + 1, smoothing
        )

    def decoder(self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """Return a decoder whose rows share everything with their sentence but their scores."""
        return _SyntacticDecoder(self, *self._encode(states, lengths))


class _SyntacticDecoder(Decoder):
    """Rows are a sentence and the log-probability of a prefix; all rows are at the same step."""

    def __init__(self, head: SyntacticAttentionHead, streams: _Streams, state: State) -> None:
        batch = streams.keys.shape[0]
        self._head, self._streams, self._state = head, streams, state
        self._sentences = torch.arange(batch, device=streams.keys.device)
        self._advance(streams.keys.new_zeros(batch))

    def _advance(self, totals: Tensor) -> None:
        """Run one step of every sentence, and add its log-probabilities to the totals of all rows."""
        meaning, self._state = self._head._step(self._streams, self._state)
        log_probs: Tensor = self._head.softmax(meaning)  # (batch, vocab)
        self._scores = totals[:, None] + log_probs[self._sentences]

    def scores(self) -> Float[Tensor, "rows vocab"]:
        return self._scores

    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        self._sentences = self._sentences[rows]
        self._advance(self._scores[rows, tokens])
