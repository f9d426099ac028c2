"""A decoder whose attention sees syntax alone, and whose words see meaning alone."""

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
    top,
    weighted_sum,
)
from permalign.heads.softmax.output import OutputSoftmax, with_end
from permalign.shapes import Float, Int


@dataclass(frozen=True)
class _Streams:
    """What a step reads of the source: keys ``W_a h_i``, syntax ``h_i``, meanings ``W_m x_i``, -inf at padding."""

    keys: Tensor
    syntax: Tensor
    meanings: Tensor
    bias: Tensor


class SyntacticAttentionHead(Head):
    """Two streams that meet only in the attention weights (Russin et al., 2019).

    Syntax ``h_i`` is what the encoder makes of the reordered states ``x_i``; the meaning ``m_i = W_m x_i`` of a word
    knows no context. A learned end is the last word of every sentence: its meaning is to stop. A step is

        weights = softmax_i(s_j . W_a h_i)
        p(y_j)  = softmax(W sum_i weights_i m_i + b)
        s_{j+1} = LSTM(sum_i weights_i h_i, s_j)

    Where to look next depends on syntax alone, not even on the words written (they carry meaning), so that words
    are independent given the source, and a beam computes each step once for all its rows.

    Args:
        width: of the states it reads.
        words: size of the output vocabulary, with its special words.
        hidden: width of the decoder and of meanings.
        layers: LSTM layers of the decoder.
        dropout: of meanings and between layers.
        encoder: what reads the states first, if anything: called with states and lengths, its ``width`` an int.
            Without one the syntax of a word has no more context than its state.

    >>> head = SyntacticAttentionHead(width=8, words=10, hidden=6).eval()
    >>> states, lengths = torch.randn(1, 2, 8), torch.tensor([2])
    >>> torch.allclose(head.decoder(states, lengths).scores().exp().sum(), torch.ones(()))
    True
    """

    def __init__(
        self,
        *,
        width: int,
        words: int,
        hidden: int,
        layers: int = 1,
        dropout: float = 0.0,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_at_least_one(width=width, hidden=hidden, layers=layers)
        require_dropout(dropout)
        self.width, self.words = width, words
        self.encoder = encoder
        syntax_width = width_after(encoder, width)
        self.end = nn.Parameter(torch.randn(width))
        self.stack = LstmStack(
            width=syntax_width, hidden=hidden, layers=layers, dropout=dropout, source_width=syntax_width
        )
        self.keys = nn.Linear(syntax_width, hidden, bias=False)  # W_a
        self.meanings = nn.Linear(width, hidden)  # W_m
        self.dropout = nn.Dropout(dropout)
        self.softmax = OutputSoftmax(hidden, words, with_end=True)

    def _read(self, states: Tensor, lengths: Tensor) -> tuple[_Streams, State]:
        """Both streams with the end in them, and the decoder's first state."""
        self.require_states(states, lengths)
        sentence = torch.arange(states.shape[0], device=states.device)
        ended = functional.pad(states, (0, 0, 0, 1))  # (batch, n + 1, width)
        ended = ended.index_put((sentence, lengths.long()), self.end.expand(states.shape[0], -1))
        lengths = lengths + 1
        syntax = ended if self.encoder is None else self.encoder(ended, lengths)
        meanings = self.dropout(self.meanings(ended))
        streams = _Streams(self.keys(syntax), syntax, meanings, padding_bias(lengths, syntax))
        return streams, self.stack.begin(syntax, lengths)

    def _step(self, streams: _Streams, state: State) -> tuple[Tensor, State]:
        """The meaning to be written now, ``(batch, hidden)``, and the next state."""
        weights = attention_weights(top(state), streams.keys, streams.bias)  # (batch, n + 1)
        meaning = weighted_sum(weights, streams.meanings)
        return meaning, self.stack(weighted_sum(weights, streams.syntax), state)

    def log_likelihood(
        self,
        states: Float[Tensor, "batch n width"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        target_lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The sum of the log-probabilities of all words and of the end."""
        self.require_target(states, target, target_lengths, smoothing)
        streams, state = self._read(states, lengths)
        longest = int(target_lengths.max())
        features = []
        for _ in range(longest + 1):
            meaning, state = self._step(streams, state)
            features.append(meaning)
        written = with_end(target[:, :longest], target_lengths)
        return self.softmax.sentence_log_prob(
            torch.stack(features, dim=1), written, target_lengths + 1, smoothing
        )

    def decoder(self, states: Float[Tensor, "batch n width"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """One row for each sentence, with nothing written yet; rows of a sentence share all but their scores."""
        return _SyntacticDecoder(self, *self._read(states, lengths))


class _SyntacticDecoder(Decoder):
    """Rows are a sentence and the log-probability of a prefix; all stand at the same step."""

    def __init__(self, head: SyntacticAttentionHead, streams: _Streams, state: State) -> None:
        batch = streams.keys.shape[0]
        self._head, self._streams, self._state = head, streams, state
        self._sentences = torch.arange(batch, device=streams.keys.device)
        self._advance(streams.keys.new_zeros(batch))

    def _advance(self, totals: Tensor) -> None:
        """One step of every sentence, whose rows add it to what they have."""
        meaning, self._state = self._head._step(self._streams, self._state)
        log_probs: Tensor = self._head.softmax(meaning)  # (batch, words)
        self._scores = totals[:, None] + log_probs[self._sentences]

    def scores(self) -> Float[Tensor, "rows words"]:
        return self._scores

    def extend(self, rows: Int[Tensor, " new"], words: Int[Tensor, " new"]) -> None:
        self._sentences = self._sentences[rows]
        self._advance(self._scores[rows, words])
