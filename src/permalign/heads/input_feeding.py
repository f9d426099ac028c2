"""An LSTM over the output that attends to the source, and reads at every step what it attended to before."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.checks import require_at_least_one, require_dropout
from permalign.heads.attention_recurrence import attention_recurrence
from permalign.heads.copying import in_vocabulary
from permalign.heads.lstm_attention import (
    LstmStack,
    State,
    attention_weights,
    padding_bias,
    top,
    weighted_sum,
)
from permalign.heads.source_attention import AttendedSource, key_scale
from permalign.products import Linear, linear
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID

# what one step hands to the next, every tensor with rows first: ``a_j``, the weights of attention that it had, and the
# hidden state and the memory of every layer
Cache = tuple[Tensor, ...]


class InputFeedingContext(nn.Module):
    """States of the output as in Luong, Pham and Manning (2015): "general" scores of attention, input feeding.

    With source states ``h_i`` and embeddings ``E`` of output tokens, a step is

        s_j     = LSTM([E(y_{j-1}) ; a_{j-1}], s_{j-1})
        weights = softmax_i(s_j . W_a h_i)
        a_j     = tanh(W_c sum_i weights_i h_i + W_s s_j + b)

    from ``a_0 = 0``. ``W_a h`` and ``W_c h`` are computed once per sentence (a mean of projections is the projection of
    the mean), and embeddings for all steps at once: a step of training is one cell, two products with the source and
    one square layer. ``a_j`` depends on the sentence and on the preceding tokens, and not on any alignment.
    O(n m hidden_size + m hidden_size^2) time.

    Args:
        source_size: the size of the source states.
        vocab_size: the size of the vocabulary, special tokens included.
        embedding_dim: the size of the embeddings of output tokens.
        hidden_size: the size of the states.
        num_layers: the number of LSTM layers.
        dropout: dropout on embeddings, between layers, and on the states that are returned (but not on what is fed to
            the next step).
        scaled_attention: whether the scores of attention are divided by the square root of ``hidden_size``.
        order_free: whether the LSTM begins with a state computed from the mean of the source states, instead of the
            first and the last of them, so that nothing depends on their order.

    >>> context = InputFeedingContext(source_size=6, vocab_size=9, embedding_dim=3, hidden_size=4).eval()
    >>> source = context.project(torch.randn(2, 5, 6), torch.tensor([5, 3]))
    >>> context(torch.tensor([[7, 5, 8], [4, 5, 8]]), source).shape  # before the first token, and after every token
    torch.Size([2, 4, 4])
    """

    def __init__(
        self,
        *,
        source_size: int,
        vocab_size: int,
        embedding_dim: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        scaled_attention: bool = False,
        order_free: bool = False,
    ) -> None:
        super().__init__()
        require_at_least_one(embedding_dim=embedding_dim, hidden_size=hidden_size, num_layers=num_layers)
        require_dropout(dropout)
        self.hidden_size, self.order_free = hidden_size, order_free
        self.window_size = None  # every state depends on the whole prefix
        self.fused = num_layers == 1  # whether all steps run as one operation
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
        self.keys = Linear(source_size, hidden_size, bias=False)  # W_a
        self.values = Linear(source_size, hidden_size, bias=False)  # W_c
        self.combine = Linear(hidden_size, hidden_size)  # W_s and b

    def project(
        self, source: Float[Tensor, "batch n source_size"], lengths: Int[Tensor, " batch"]
    ) -> AttendedSource:
        """Return the source as every step reads it, and the first state of the LSTM."""
        keys, bias = self.keys(source) * self.key_scale, padding_bias(lengths, source)
        if self.order_free:
            share = bias.exp() / lengths[:, None]  # of each state in the mean; none at padding
            mean = share[:, None] @ source  # (batch, 1, source_size)
            initial = self.stack.initial_state(mean, torch.ones_like(lengths))
        else:
            initial = self.stack.initial_state(source, lengths)
        return AttendedSource(keys, self.values(source), bias, initial)

    def forward(
        self, outputs: Int[Tensor, "batch m"], source: AttendedSource | None
    ) -> Float[Tensor, "batch m+1 hidden_size"]:
        """Return the states before the first token and after every token; ignore those after padding."""
        assert source is not None
        embedded = self._embed(functional.pad(outputs, (1, 0), value=BEGIN_ID))
        attended = self.run_fused(source, embedded) if self.fused else self.run_steps(source, embedded)[0]
        dropped: Tensor = self.dropout(attended)
        return dropped

    def with_weights(
        self, outputs: Int[Tensor, "batch m"], source: AttendedSource
    ) -> tuple[Float[Tensor, "batch m+1 hidden_size"], Float[Tensor, "batch m+1 n"]]:
        """Return the states, and the weights of attention."""
        attended, weights = self.run_steps(
            source, self._embed(functional.pad(outputs, (1, 0), value=BEGIN_ID))
        )
        return self.dropout(attended), weights

    def begin(
        self, rows: int, device: torch.device, source: AttendedSource | None
    ) -> tuple[Float[Tensor, "rows hidden_size"], Cache]:
        """Return the states of empty prefixes, one for every sentence of the source, and a cache for `advance`."""
        assert source is not None
        begin = torch.full((rows,), BEGIN_ID, device=device)
        return self._advance(source.initial, source.keys.new_zeros(rows, self.hidden_size), begin, source)

    def advance(
        self,
        cache: Cache,
        rows: Int[Tensor, " new"],
        tokens: Int[Tensor, " new"],
        source: AttendedSource | None,
    ) -> tuple[Float[Tensor, "new hidden_size"], Cache]:
        """Return the states after one more token, and the new cache.

        Args:
            cache: what is known of the rows so far.
            rows: the row that each new row continues.
            tokens: the token of each new row.
            source: the source of each new row.
        """
        assert source is not None
        attended, _, *state = (tensor[rows] for tensor in cache)
        return self._advance(_by_layer(state), attended, tokens, source)

    def _advance(
        self, state: State, attended: Tensor, tokens: Tensor, source: AttendedSource
    ) -> tuple[Tensor, Cache]:
        """Return the states after one more token in every row, with dropout, and the new cache."""
        state, attended, weights = self._step(source, state, attended, self._embed(tokens))
        return self.dropout(attended), (attended, weights, *(tensor for layer in state for tensor in layer))

    def _embed(self, tokens: Tensor) -> Tensor:
        known = in_vocabulary(tokens, self.embeddings.num_embeddings)
        embedded: Tensor = self.dropout(self.embeddings(known))
        return embedded

    def _step(
        self, source: AttendedSource, state: State, attended: Tensor, embedded: Tensor
    ) -> tuple[State, Tensor, Tensor]:
        """Return ``s_j``, ``a_j`` and the attention weights of all rows, from the previous step."""
        state = self.stack(torch.cat([embedded, attended], dim=-1), state)
        weights = attention_weights(top(state), source.keys, source.bias)  # (rows, n)
        attended = (weighted_sum(weights, source.values) + self.combine(top(state))).tanh()
        return state, attended, weights  # attended: (rows, hidden_size)

    def run_steps(
        self, source: AttendedSource, embedded: Float[Tensor, "batch steps embedding_dim"]
    ) -> tuple[Float[Tensor, "batch steps hidden_size"], Float[Tensor, "batch steps n"]]:
        """Return ``a_j`` and the attention weights of all steps, one step after the other."""
        state, attended = source.initial, embedded.new_zeros(embedded.shape[0], self.hidden_size)
        steps, weights = [], []
        for token in embedded.unbind(1):
            state, attended, of_step = self._step(source, state, attended, token)
            steps.append(attended)
            weights.append(of_step)
        return torch.stack(steps, dim=1), torch.stack(weights, dim=1)

    def run_fused(
        self, source: AttendedSource, embedded: Float[Tensor, "batch steps embedding_dim"]
    ) -> Float[Tensor, "batch steps hidden_size"]:
        """Return ``a_j`` of all steps of a network with one layer, as one operation."""
        (cell,), ((hidden, memory),) = self.stack.cells, source.initial
        assert isinstance(cell, nn.LSTMCell)
        of_tokens, of_attended = cell.weight_ih.split([embedded.shape[2], self.hidden_size], dim=1)
        inputs = linear(embedded.transpose(0, 1), of_tokens, cell.bias_ih + cell.bias_hh)
        weight = torch.cat([of_attended, cell.weight_hh], dim=1)
        combine = (self.combine.weight, self.combine.bias)
        return attention_recurrence(inputs, weight, source, *combine, hidden, memory).transpose(0, 1)


def weights_of(cache: Cache) -> Float[Tensor, "rows n"]:
    """Return the weights of attention of the last step."""
    return cache[1]


def _by_layer(tensors: Sequence[Tensor]) -> State:
    """Return the hidden state and the memory of every layer, from a list of them."""
    return tuple(zip(tensors[::2], tensors[1::2], strict=True))
