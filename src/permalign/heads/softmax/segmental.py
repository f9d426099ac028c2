"""The tokens of segments: a softmax over tokens and a stop, given a source cell and the preceding output."""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from permalign.heads.copying import CopyGate, CopySource, in_vocabulary, mix
from permalign.heads.output_context import output_context
from permalign.heads.softmax.cell_step import CellStepSoftmax
from permalign.heads.source_attention import AttendedSource
from permalign.shapes import Float, Int
from permalign.structures.log_space import LOG_ZERO
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID

History = Literal["segment", "output"]


class SegmentalSoftmax(CellStepSoftmax):
    """``p(w | i, before) = softmax_w(A_i + B_before)``, where END stands for the stop of a segment.

    A segment of L tokens stops by itself, so that the probabilities of all segments of a cell sum to one.

    Args:
        cell_size: the size of the source cells.
        vocab_size: the size of the vocabulary, special tokens included.
        embedding_dim: the size of the embeddings of output tokens.
        hidden_size: the size of the states of the preceding output.
        max_segment_length: L, the length of the longest segment.
        num_layers: the number of layers of the network over the preceding output.
        dropout: dropout on embeddings and states.
        context: ``"full"`` for all preceding tokens, or how many of the last ones the network sees.
        history: which tokens precede: those of the same ``segment``, or of the whole ``output``.
        num_negatives: in training, how many tokens are drawn for each batch to stand for those that are not in it; None
            for the whole vocabulary.
        attention: whether the states of the preceding output attend to all cells.
        scaled_attention: whether the scores of attention are divided by the square root of ``hidden_size``.
        input_feeding: whether the network over the preceding output reads at every step what it attended to before.
        copy_mechanism: whether cells may copy their source words.
    """

    def __init__(
        self,
        *,
        cell_size: int,
        vocab_size: int,
        embedding_dim: int,
        hidden_size: int,
        max_segment_length: int,
        num_layers: int = 1,
        dropout: float = 0.0,
        context: Literal["full"] | int = 1,
        history: History = "segment",
        num_negatives: int | None = None,
        attention: bool = False,
        scaled_attention: bool = False,
        input_feeding: bool = False,
        copy_mechanism: bool = False,
    ) -> None:
        super().__init__()
        if history not in get_args(History):
            raise ValueError(f"history is {history!r}, but must be one of {', '.join(get_args(History))}.")
        self.max_segment_length, self.history = max_segment_length, history
        if input_feeding and history != "output":
            raise ValueError(
                f"input_feeding is true, but history is {history!r}: what is fed depends on the whole output, so the "
                "history must be 'output'."
            )
        self.context = output_context(
            source_size=cell_size,
            vocab_size=vocab_size,
            embedding_dim=embedding_dim,
            hidden_size=hidden_size,
            num_layers=num_layers,
            dropout=dropout,
            context=context,
            attention=attention,
            scaled_attention=scaled_attention,
            input_feeding=input_feeding,
            order_free=True,  # sums over orders have one state for all of them
        )
        self._add_projections(cell_size, hidden_size, vocab_size, [PADDING_ID, BEGIN_ID], num_negatives)
        self.copy_gate = CopyGate(cell_size, hidden_size) if copy_mechanism else None

    def segment_log_probs(
        self,
        cells: Float[Tensor, "batch n cell_size"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch m"],
        smoothing: float = 0.0,
        copies: CopySource | None = None,
    ) -> Float[Tensor, "batch n starts sizes"]:
        """Return the log-probability of every segment ``[cell, start, size]``; ignore those that end beyond ``m``.

        With smoothing, the log-probability of each token and each stop is interpolated with the mean over all of them.
        Smoothing leaves out what is copied.
        """
        tokens, target = target, in_vocabulary(target, len(self.forbidden))
        # (batch, steps, hidden_size), and the step of each (start, size)
        steps, index = self._steps(target, self.context.project(cells, lengths))
        log_normaliser = self.log_normaliser(cells, steps, target)
        weight, bias = self.of_cells.weight, self.of_cells.bias
        stop_cell = cells @ weight[END_ID] + bias[END_ID]
        stop = stop_cell[:, :, None] + (steps @ self.of_steps.weight[END_ID])[:, None]  # (batch, n, steps)
        next_tokens = self._windows(target)  # (batch, starts, sizes): the token after ``size`` others
        write = self._token_logits(cells, steps[:, index], next_tokens)  # (batch, n, starts, sizes)
        if smoothing:
            mean = self.mean_logits(cells, steps)
            stop = (1 - smoothing) * stop + smoothing * mean
            write = (1 - smoothing) * write + smoothing * mean[:, :, index]
        stop = (stop - log_normaliser)[:, :, index]
        write = write - log_normaliser[:, :, index]
        if self.copy_gate is not None and copies is not None:
            keep, copy = self.copy_gate(cells, copies.shares(cells), steps)
            stop = stop + keep[:, :, index]
            copied = copies.log_probs(tokens, cells.shape[1], cells.dtype)  # (batch, n, m)
            copied = functional.pad(copied, (0, self.max_segment_length), value=LOG_ZERO)
            copied = copied.unfold(2, self.max_segment_length, 1)  # (batch, n, starts, sizes)
            beyond = self._windows(tokens)[:, None] >= len(self.forbidden)
            write = mix(keep[:, :, index], write, copy[:, :, index], copied, beyond)
        written = functional.pad(write.cumsum(-1), (1, 0))
        return written + functional.pad(stop, (0, 1))

    def _steps(self, target: Tensor, source: AttendedSource | None) -> tuple[Tensor, Tensor]:
        """Return the states of the preceding output, and the index of the one for each ``(start, tokens written)``.

        With a context of one token, or a history of the whole output, there is one state for the beginning and one for
        every token; otherwise one for each start and size.
        """
        starts, longest, device = target.shape[1] + 1, self.max_segment_length, target.device
        start, size = torch.arange(starts, device=device)[:, None], torch.arange(longest, device=device)
        after = (start + size).clamp(max=starts - 1)
        if self.history == "output":
            return self.context(target, source), after
        if self.context.window_size == 1:
            return self.context(target, source), torch.where(size == 0, 0, after)
        windows = self._windows(target)[:, :, :-1]
        if source is not None:  # every start reads the same sentence
            source = source.select(torch.arange(len(target), device=device).repeat_interleave(starts))
        states = self.context(windows.flatten(0, 1), source).unflatten(0, windows.shape[:2])
        return states.flatten(1, 2), start * longest + size

    def _windows(self, target: Tensor) -> Tensor:
        """Return the L tokens that follow each start, ``(batch, starts, sizes)``; padding beyond the last token."""
        longest = self.max_segment_length
        following: Tensor = functional.pad(target, (0, longest)).unfold(1, longest, 1)
        return following

    def _token_logits(self, cells: Tensor, steps: Tensor, tokens: Tensor) -> Tensor:
        """Return the logits ``(batch, n, starts, sizes)`` of one token per start and size, from its own weights."""
        of_steps = (functional.embedding(tokens, self.of_steps.weight) * steps).sum(-1)
        of_steps = of_steps + self.of_cells.bias[tokens]
        output = torch.cat([tokens[:, :, 0], tokens[:, -1, 1:]], dim=1)  # every token of the output once
        weight = functional.embedding(output, self.of_cells.weight)
        of_cells: Tensor = (cells @ weight.transpose(1, 2)).unfold(2, self.max_segment_length, 1)
        return of_cells + of_steps[:, None]
