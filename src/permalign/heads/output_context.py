"""Networks over the output written so far, with or without attention to the source."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import pad

from permalign.checks import require_at_least_one, require_dropout
from permalign.heads.copying import in_vocabulary
from permalign.heads.input_feeding import InputFeedingContext
from permalign.heads.lstm_gates import lstm_state
from permalign.heads.source_attention import AttendedSource, NoAttention, SourceAttention
from permalign.precision import in_low_precision
from permalign.products import Linear, linear
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID

CELL_PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""The parameters of each layer of an LSTM, in the order of the arguments of ``torch.lstm_cell``."""

# what is carried from one step to the next, every tensor with rows first
Cache = tuple[Tensor, ...]


class OutputContext(nn.Module):
    """A state for every prefix of an output, from all its tokens or only from the last few.

    With attention, states also attend to the source, after the network has read the prefix (see `SourceAttention`). No
    state depends on an alignment, so that sums over alignments stay exact.

    Args:
        vocab_size: the size of the vocabulary, special tokens included.
        embedding_dim: the size of the embeddings.
        hidden_size: the size of the states.
        num_layers: the number of layers.
        dropout: dropout on embeddings, between the layers of an LSTM, and on states.
        context: ``"full"`` for an LSTM over the whole prefix, or k for a feed-forward network over the last k tokens:
            their embeddings, concatenated, through ``num_layers`` linear layers with tanh. Shorter prefixes are filled
            up with BEGIN.
        source_size: the size of the source states, if states attend to them; None for no attention.
        scaled_attention: whether the scores of attention are divided by the square root of ``hidden_size``.

    >>> context = OutputContext(vocab_size=9, embedding_dim=4, hidden_size=6, context=2).eval()
    >>> outputs = torch.tensor([[7, 5, 8], [4, 5, 8]])
    >>> states = context(outputs)
    >>> states.shape  # before the first token, and after every token
    torch.Size([2, 4, 6])
    >>> torch.allclose(states[0, 3], states[1, 3])  # the last two tokens are the same
    True
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        embedding_dim: int,
        hidden_size: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = "full",
        source_size: int | None = None,
        scaled_attention: bool = False,
    ) -> None:
        super().__init__()
        require_at_least_one(
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
        )
        require_dropout(dropout)
        self.window_size = _window_size(context)  # None for the whole prefix
        self.embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.dropout = nn.Dropout(dropout)
        self.network = (
            nn.LSTM(
                embedding_dim,
                hidden_size,
                num_layers,
                batch_first=True,
                dropout=dropout if num_layers > 1 else 0.0,
            )
            if self.window_size is None
            else _tanh_layers(self.window_size * embedding_dim, hidden_size, num_layers)
        )
        self.attention = (
            NoAttention()
            if source_size is None
            else SourceAttention(source_size, hidden_size, dropout, scaled_attention)
        )

    def project(
        self, source: Float[Tensor, "batch n source_size"], lengths: Int[Tensor, " batch"]
    ) -> AttendedSource | None:
        """Return the source as every state reads it; None without attention."""
        return self.attention.project(source, lengths)

    def forward(
        self, outputs: Int[Tensor, "batch m"], source: AttendedSource | None = None
    ) -> Float[Tensor, "batch m+1 hidden_size"]:
        """Return the states before the first token and after every token; ignore those after padding."""
        if self.window_size is None:
            embedded = self.embed(pad(outputs, (1, 0), value=BEGIN_ID))
            states, _ = in_low_precision(self.network, embedded, on_cpu=False)
            states = self.dropout(states)
        else:
            padded = pad(outputs, (self.window_size, 0), value=BEGIN_ID)
            states = self._run_windows(padded.unfold(1, self.window_size, 1))
        after_prefixes: Tensor = self.attention(states, source)
        return after_prefixes

    def begin(
        self, rows: int, device: torch.device, source: AttendedSource | None = None
    ) -> tuple[Float[Tensor, "rows hidden_size"], Cache]:
        """Return the states of empty prefixes, and a cache for `advance`.

        Args:
            rows: how many prefixes there are.
            device: where they are.
            source: the source of each row; None without attention.
        """
        begin = torch.full((1, self.window_size or 1), BEGIN_ID, device=device)
        if self.window_size is None:
            states, cache = self._begin_lstm(begin.squeeze(1))
        else:
            states, cache = self._run_windows(begin), (begin,)
        # the same for all of them, until they attend to their sources
        every = tuple(tensor.expand(rows, -1) for tensor in (states, *cache))
        return self._attend(every[0], source), every[1:]

    def advance(
        self,
        cache: Cache,
        rows: Int[Tensor, " new"],
        tokens: Int[Tensor, " new"],
        source: AttendedSource | None = None,
    ) -> tuple[Float[Tensor, "new hidden_size"], Cache]:
        """Return the states after one more token, and the new cache.

        Args:
            cache: what is known of the rows so far.
            rows: the row that each new row continues.
            tokens: the token of each new row.
            source: the source of each new row; None without attention.
        """
        if self.window_size is None:
            states, cache = self._step_lstm(tokens, cache, rows)
        else:
            window = torch.cat([cache[0][rows, 1:], tokens[:, None]], dim=1)
            states, cache = self._run_windows(window), (window,)
        return self._attend(states, source), cache

    def _attend(self, states: Tensor, source: AttendedSource | None) -> Tensor:
        """Let the state of every row attend to its own source."""
        attended: Tensor = self.attention(states[:, None], source)
        return attended.squeeze(1)

    def embed(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows embedding_dim"]:
        """Return the embeddings of tokens, with dropout; words beyond the vocabulary are unknown."""
        known = in_vocabulary(tokens, self.embeddings.num_embeddings)
        embedded: Tensor = self.dropout(self.embeddings(known))
        return embedded

    def _run_windows(self, windows: Tensor) -> Tensor:
        """Return the states of windows of tokens, ``(..., window_size)``."""
        states: Tensor = self.dropout(in_low_precision(self.network, self.embed(windows).flatten(-2)))
        return states

    def _begin_lstm(self, begin: Int[Tensor, "1"]) -> tuple[Tensor, Cache]:
        """Read BEGIN."""
        assert isinstance(self.network, nn.LSTM)
        zeros = self.embeddings.weight.new_zeros(1, self.network.hidden_size)
        cache = (zeros, zeros) * self.network.num_layers
        return self._step_lstm(begin, cache, torch.zeros_like(begin))

    def _step_lstm(
        self, tokens: Int[Tensor, " new"], cache: Cache, rows: Int[Tensor, " new"]
    ) -> tuple[Tensor, Cache]:
        """Read one token per row; a cache has the hidden state and the memory of every layer, ``(rows, size)`` each.

        Many rows of a beam have the same last token, or continue the same prefix. The products with the weights, which
        take most of the time, are computed once for each token and each prefix. (torch's own LSTM would also rearrange
        all of its weights at every step.)
        """
        network = self.network
        assert isinstance(network, nn.LSTM)
        words, of_word = tokens.unique(return_inverse=True)
        prefixes, of_prefix = rows.unique(return_inverse=True)
        after: list[Tensor] = []
        for layer in range(network.num_layers):
            weights = [getattr(network, f"{name}_l{layer}") for name in CELL_PARAMETERS]
            if layer:
                inputs = functional.dropout(after[-2], network.dropout, network.training)
                gates = _project(inputs, weights[0], weights[2])
            else:
                gates = _project(self.embed(words), weights[0], weights[2]).index_select(0, of_word)
            hidden, memory = cache[2 * layer : 2 * layer + 2]
            of_prefixes = _project(hidden.index_select(0, prefixes), weights[1], weights[3])
            gates += of_prefixes.index_select(0, of_prefix)
            after += lstm_state(gates, memory.index_select(0, rows))
        return self.dropout(after[-2]), tuple(after)


def _project(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    projected: Tensor = in_low_precision(linear, inputs, weight, bias, on_cpu=False)
    return projected


def output_context(
    *,
    source_size: int,
    vocab_size: int,
    embedding_dim: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    context: Literal["full"] | int,
    attention: bool,
    scaled_attention: bool,
    input_feeding: bool,
    order_free: bool = False,
) -> OutputContext | InputFeedingContext:
    """Return the network over the output of a head with alignments: without attention, with it, or with input feeding.

    If it is ``order_free``, no state depends on the order of the source states.

    Raises:
        ValueError: there is input feeding without attention, or with a context of a few tokens.
    """
    if input_feeding and not attention:
        raise ValueError("input_feeding is true, but attention is false: there is nothing to feed.")
    if input_feeding and context != "full":
        raise ValueError(
            f"input_feeding is true, but context is {context!r}: what is fed depends on all preceding tokens, so the "
            "context must be 'full'."
        )
    if input_feeding:
        return InputFeedingContext(
            source_size=source_size,
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            scaled_attention=scaled_attention,
            order_free=order_free,
        )
    return OutputContext(
        vocab_size=vocab_size,
        embedding_dim=embedding_dim,
        hidden_size=hidden_size,
        num_layers=num_layers,
        dropout=dropout,
        context=context,
        source_size=source_size if attention else None,
        scaled_attention=scaled_attention,
    )


def _window_size(context: Literal["full"] | int) -> int | None:
    if context == "full":
        return None
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise ValueError(
            f"context is {context!r}, but must be 'full' (all preceding tokens) or how many of the last tokens to see, "
            "at least 1."
        )
    return context


def _tanh_layers(input_size: int, hidden_size: int, num_layers: int) -> nn.Sequential:
    layers = [Linear(hidden_size if layer else input_size, hidden_size) for layer in range(num_layers)]
    return nn.Sequential(*(module for layer in layers for module in (layer, nn.Tanh())))
