"""What a head knows of the words it has written, without looking at the source."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from permalign.checks import require_at_least_one, require_dropout
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID

# what is carried from one word to the next, every tensor with rows first
Carried = tuple[Tensor, ...]


class OutputContext(nn.Module):
    """A state for every prefix of an output: of all its words, or of the last few alone.

    Since no state depends on an alignment, sums over alignments stay exact.

    Args:
        words: size of the vocabulary, with its special words.
        embedding: width of the words' embeddings.
        hidden: width of the states.
        layers: of the network.
        dropout: of embeddings, between the layers of an LSTM, and of states.
        context: ``"full"`` for an LSTM over the whole prefix, or the number k of last words: their embeddings side by
            side, through ``layers`` linear layers with tanh. Fewer words are filled up with begin.

    >>> context = OutputContext(words=9, embedding=4, hidden=6, context=2).eval()
    >>> outputs = torch.tensor([[7, 5, 8], [4, 5, 8]])
    >>> states = context(outputs)
    >>> states.shape  # before the first word, and after every word
    torch.Size([2, 4, 6])
    >>> torch.allclose(states[0, 3], states[1, 3])  # the last two words are the same
    True
    """

    def __init__(
        self,
        *,
        words: int,
        embedding: int,
        hidden: int,
        layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = "full",
    ) -> None:
        super().__init__()
        require_at_least_one(words=words, embedding=embedding, hidden=hidden, layers=layers)
        require_dropout(dropout)
        self.width, self.layers = hidden, layers
        self.last = _last_words(context)  # None for all
        self.embeddings = nn.Embedding(words, embedding)
        self.dropout = nn.Dropout(dropout)
        self.network = (
            nn.LSTM(embedding, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
            if self.last is None
            else _tanh_layers(self.last * embedding, hidden, layers)
        )

    def forward(self, outputs: Int[Tensor, "batch m"]) -> Float[Tensor, "batch m+1 hidden"]:
        """The states before the first word and after every word; those after padding are to be ignored."""
        if self.last is None:
            return self._read(pad(outputs, (1, 0), value=BEGIN_ID), None)[0]
        return self._look(pad(outputs, (self.last, 0), value=BEGIN_ID).unfold(1, self.last, 1))

    def begin(self, rows: int, device: torch.device) -> tuple[Float[Tensor, "rows hidden"], Carried]:
        """The states of rows with nothing written yet, and what to carry on."""
        begin = torch.full((rows, self.last or 1), BEGIN_ID, device=device)
        if self.last is None:
            return self._step(begin, None)
        return self._look(begin), (begin,)

    def advance(
        self, carried: Carried, words: Int[Tensor, " rows"]
    ) -> tuple[Float[Tensor, "rows hidden"], Carried]:
        """The states after one more word in every row, and what to carry on."""
        if self.last is None:
            return self._step(words[:, None], carried)
        window = torch.cat([carried[0][:, 1:], words[:, None]], dim=1)
        return self._look(window), (window,)

    def embed(self, words: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows embedding"]:
        """The embeddings of words, dropped out in training."""
        embedded: Tensor = self.dropout(self.embeddings(words))
        return embedded

    def _look(self, windows: Tensor) -> Tensor:
        """The states of windows of words, ``(..., last)``."""
        states: Tensor = self.dropout(self.network(self.embed(windows).flatten(-2)))
        return states

    def _read(
        self, words: Tensor, before: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The states after each of some words, ``(rows, words, hidden)``, and the LSTM's own after the last."""
        states, after = self.network(self.embed(words), before)
        return self.dropout(states), after

    def _step(self, words: Tensor, carried: Carried | None) -> tuple[Tensor, Carried]:
        """As `_read` of one word; what is carried has rows first, as everything a decoder selects from."""
        before = None
        if carried is not None:
            before = (carried[0].transpose(0, 1).contiguous(), carried[1].transpose(0, 1).contiguous())
        states, after = self._read(words, before)
        return states.squeeze(1), tuple(state.transpose(0, 1) for state in after)


def _last_words(context: Literal["full"] | int) -> int | None:
    if context == "full":
        return None
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise ValueError(
            f"context is {context!r}, but must be 'full' (all words written) or how many of the last words to see, at "
            "least 1."
        )
    return context


def _tanh_layers(width: int, hidden: int, layers: int) -> nn.Sequential:
    linear = [nn.Linear(hidden if layer else width, hidden) for layer in range(layers)]
    return nn.Sequential(*(module for layer in linear for module in (layer, nn.Tanh())))
