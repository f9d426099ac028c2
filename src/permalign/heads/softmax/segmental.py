"""The words of segments: a softmax over words and a stop, from a source cell and what its segment has written."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.heads.output_context import OutputContext
from permalign.heads.softmax.projected import projected_log_normaliser
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS

History = Literal["segment", "output"]


class SegmentalSoftmax(nn.Module):
    """``p(w | i, before) = softmax_w(A_i + B_before)``, where the end stands for the segment's stop.

    ``A_i`` is a projection of the source cell alone and ``B_before`` one of the words before alone, so that
    both are made once and only the normaliser meets all pairs. A segment of L words stops by itself, so that the
    probabilities of a cell's segments sum to one.

    Args:
        cell_width: of the source cells.
        words: size of the vocabulary, with its special words.
        embedding: width of the embeddings of output words.
        hidden: width of the states of what a segment has written.
        max_segment_length: L.
        layers: of the network over the words of a segment.
        dropout: of embeddings and states.
        context: ``"full"`` for a network over all words before, or the number of last words it sees.
        history: which words come before: those of the ``segment``, or of the whole ``output`` so far.
    """

    forbidden: Tensor

    def __init__(
        self,
        *,
        cell_width: int,
        words: int,
        embedding: int,
        hidden: int,
        max_segment_length: int,
        layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = 1,
        history: History = "segment",
    ) -> None:
        super().__init__()
        if history not in get_args(History):
            raise ValueError(f"history is {history!r}, but must be one of {', '.join(get_args(History))}.")
        if words <= len(SPECIALS):
            raise ValueError(
                f"words is {words}, but must be at least {len(SPECIALS) + 1}: the vocabulary's size, counting the "
                f"special words {' '.join(SPECIALS)}."
            )
        self.longest, self.history = max_segment_length, history
        self.context = OutputContext(
            words=words, embedding=embedding, hidden=hidden, layers=layers, dropout=dropout, context=context
        )
        self.of_cells = nn.Linear(cell_width, words)  # A
        self.of_steps = nn.Linear(hidden, words, bias=False)  # B
        forbidden = torch.zeros(words)
        forbidden[[PADDING_ID, BEGIN_ID]] = -torch.inf
        self.register_buffer("forbidden", forbidden, persistent=False)

    def cell_logits(self, cells: Float[Tensor, "batch n width"]) -> Float[Tensor, "batch n words"]:
        """A, the bias included; -inf for words that are never written."""
        return functional.linear(cells, self.of_cells.weight, self.of_cells.bias + self.forbidden)

    def step_logits(self, steps: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows words"]:
        """B."""
        logits: Tensor = self.of_steps(steps)
        return logits

    def segment_log_probs(
        self, cells: Float[Tensor, "batch n width"], target: Int[Tensor, "batch m"], smoothing: float = 0.0
    ) -> Float[Tensor, "batch n starts sizes"]:
        """The log-probability of every segment ``[cell, start, size]``; those that end behind ``m`` mean nothing.

        With smoothing every word's and every stop's is mixed with the mean over all of them.
        """
        steps, place = self._steps(target)  # (batch, steps, hidden), and the step of each (start, size)
        weight, bias = self.of_cells.weight, self.of_cells.bias
        log_normaliser = projected_log_normaliser(
            cells, steps, weight, self.of_steps.weight, bias + self.forbidden
        )
        stop_cell = cells @ weight[END_ID] + bias[END_ID]
        stop = stop_cell[:, :, None] + (steps @ self.of_steps.weight[END_ID])[:, None]  # (batch, n, steps)
        next_word = self._next_words(target)  # (batch, starts, sizes)
        write = self._word_logits(cells, steps[:, place], next_word)  # (batch, n, starts, sizes)
        if smoothing:
            mean = self._mean_logits(cells, steps)
            stop = (1 - smoothing) * stop + smoothing * mean
            write = (1 - smoothing) * write + smoothing * mean[:, :, place]
        stop = (stop - log_normaliser)[:, :, place]
        written = functional.pad((write - log_normaliser[:, :, place]).cumsum(-1), (1, 0))
        return written + functional.pad(stop, (0, 1))

    def _steps(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """States of what segments have written, and where that of each ``(start, words written)`` stands.

        With a context of one word they are those of every word and of the beginning, else one for each start and size.
        """
        starts, device = target.shape[1] + 1, target.device
        start, size = torch.arange(starts, device=device)[:, None], torch.arange(self.longest, device=device)
        after = (start + size).clamp(max=starts - 1)
        if self.history == "output":
            return self.context(target), after
        if self.context.last == 1:
            return self.context(target), torch.where(size == 0, 0, after)
        windows = functional.pad(target, (0, self.longest)).unfold(1, self.longest, 1)[:, :, :-1]
        states = self.context(windows.flatten(0, 1)).unflatten(0, windows.shape[:2])
        return states.flatten(1, 2), start * self.longest + size

    def _next_words(self, target: Tensor) -> Tensor:
        """The word that follows each (start, words written); padding behind the last."""
        following: Tensor = functional.pad(target, (0, self.longest)).unfold(1, self.longest, 1)
        return following

    def _word_logits(self, cells: Tensor, steps: Tensor, words: Tensor) -> Tensor:
        """Logits ``(batch, n, starts, sizes)`` of one word for each start and size, from its own rows of weights."""
        of_steps = (functional.embedding(words, self.of_steps.weight) * steps).sum(-1)
        of_steps = of_steps + self.of_cells.bias[words]
        each = torch.cat([words[:, :, 0], words[:, -1, 1:]], dim=1)  # every word of the output once
        by_word = functional.embedding(each, self.of_cells.weight)
        of_cells: Tensor = (cells @ by_word.transpose(1, 2)).unfold(2, self.longest, 1)
        return of_cells + of_steps[:, None]

    def _mean_logits(self, cells: Tensor, steps: Tensor) -> Tensor:
        """Mean logits ``(batch, n, steps)`` of what can be written, the stop among it."""
        allowed = self.forbidden.isfinite().to(cells)
        share = allowed / allowed.sum()
        of_cells = cells @ (share @ self.of_cells.weight) + share @ self.of_cells.bias
        return of_cells[:, :, None] + (steps @ (share @ self.of_steps.weight))[:, None]
