"""An LSTM decoder that attends to the source at every step."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.checks import require_at_least_one, require_dropout
from permalign.heads.attention_recurrence import attention_recurrence
from permalign.heads.base import Decoder, Head, encoded_size
from permalign.heads.copying import CopyGate, CopySource, in_vocabulary, mix
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
from permalign.heads.source_attention import AttendedSource, key_scale
from permalign.masks import padding_mask
from permalign.shapes import Float, Int
from permalign.structures.log_space import LOG_ZERO, minus_infinity_below
from permalign.text.codec import BEGIN_ID, PADDING_ID, UNKNOWN_ID


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
        require_at_least_one(
            input_size=input_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
        )
        require_dropout(dropout)
        self.input_size, self.vocab_size, self.hidden_size = input_size, vocab_size, hidden_size
        self.fused = num_layers == 1  # whether `log_likelihood` runs all steps as one operation
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
        self.key_scale = key_scale(hidden_size, scaled_attention)
        self.keys = nn.Linear(source_size, hidden_size, bias=False)  # W_a
        self.values = nn.Linear(source_size, hidden_size, bias=False)  # W_c
        self.combine = nn.Linear(hidden_size, hidden_size)  # W_s and b
        self.softmax = OutputSoftmax(hidden_size, vocab_size, True, num_negatives)
        self.copy_mechanism = copy_mechanism
        self.copy_gate = CopyGate(hidden_size) if copy_mechanism else None

    def _encode(self, states: Tensor, lengths: Tensor) -> tuple[AttendedSource, State]:
        """Return the source as every step reads it, and the initial state of the decoder."""
        self.require_states(states, lengths)
        encoded = states if self.encoder is None else self.encoder(states, lengths)
        keys = self.keys(encoded) * self.key_scale
        source = AttendedSource(keys, self.values(encoded), padding_bias(lengths, encoded))
        return source, self.stack.initial_state(encoded, lengths)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embeddings(in_vocabulary(tokens, self.vocab_size)))
        return embedded

    def _step(
        self, source: AttendedSource, state: State, attended: Tensor, embedded: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        """Return ``s_j``, ``a_j`` and the attention weights of all rows, from the previous step."""
        state = self.stack(torch.cat([embedded, attended], dim=-1), state)
        weights = attention_weights(top(state), source.keys, source.bias)  # (rows, n)
        attended = (weighted_sum(weights, source.values) + self.combine(top(state))).tanh()
        return state, attended, weights  # attended: (rows, hidden_size)

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
        embedded = self._embed(
            functional.pad(target, (1, 0), value=BEGIN_ID)
        )  # (batch, steps, embedding_dim)
        weights = None
        if self.fused and self.copies is None:
            features = self._run_one_layer(source, state, embedded)
        else:
            features, weights = self._run_layers(source, state, embedded)
        dropped = self.dropout(features)  # (batch, steps, hidden_size)
        outputs = with_end(target, target_lengths)
        if self.copies is None or weights is None:
            return self.softmax.sentence_log_prob(dropped, outputs, target_lengths + 1, smoothing)
        log_probs = self._log_probs_with_copies(dropped, weights, outputs, smoothing)
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

    def _run_layers(
        self, source: AttendedSource, state: State, embedded: Tensor
    ) -> tuple[Float[Tensor, "batch steps hidden_size"], Float[Tensor, "batch steps n"]]:
        """Return ``a_j`` and the attention weights of all steps, one step after the other."""
        attended = embedded.new_zeros(embedded.shape[0], self.hidden_size)
        steps, weights = [], []
        for token in embedded.unbind(1):
            state, attended, of_step = self._step(source, state, attended, token)
            steps.append(attended)
            weights.append(of_step)
        return torch.stack(steps, dim=1), torch.stack(weights, dim=1)

    def _run_one_layer(self, source: AttendedSource, state: State, embedded: Tensor) -> Tensor:
        """Return ``a_j`` of all steps for a decoder with one layer, as one operation."""
        (cell,), ((hidden, memory),) = self.stack.cells, state
        assert isinstance(cell, nn.LSTMCell)
        of_tokens, of_attended = cell.weight_ih.split([embedded.shape[2], self.hidden_size], dim=1)
        inputs = functional.linear(embedded.transpose(0, 1), of_tokens, cell.bias_ih + cell.bias_hh)
        weight = torch.cat([of_attended, cell.weight_hh], dim=1)
        combine = (self.combine.weight, self.combine.bias)
        return attention_recurrence(inputs, weight, source, *combine, hidden, memory).transpose(0, 1)

    def decoder(self, states: Float[Tensor, "batch n input_size"], lengths: Int[Tensor, " batch"]) -> Decoder:
        """Return a decoder whose rows share the source of their sentence."""
        return _AttentionDecoder(self, *self._encode(states, lengths))


class _AttentionDecoder(Decoder):
    """Rows are a sentence, the states of the network after the prefix, and the log-probability of the prefix."""

    def __init__(self, head: AttentionHead, source: AttendedSource, state: State) -> None:
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
        self._state, self._attended, weights = head._step(
            self._source_of_rows, self._state, self._attended, head._embed(tokens)
        )
        features = head.dropout(self._attended)
        log_probs: Tensor = head.softmax(features)
        if head.copy_gate is not None and head.copies is not None:
            pointers = head.with_copies(head.copies.select(self._sentences)).pointers(weights[:, None])
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
        self._state, self._attended = select(self._state, rows), self._attended[rows]
        self._advance(tokens, self._scores[rows, tokens])
