"""The paper's method as in its authors' code: the baseline of ratios, and a reference for the outputs of our method.

It is a Python loop over spans. For all splits of a span at once, representations of its two parts are joined and passed
through the multi-layer perceptron; for every span, from the narrowest to the widest, block matrices of its parts
are summed, weighted by the rules, which is O(n^5). Sentences of a batch have one length; gradients come from autograd.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class SlowResult(NamedTuple):
    """The outputs of the paper's method."""

    scores: Tensor  # (batch, split, rule), packed by width
    log_partition: Tensor  # (batch,)
    expected_matrix: Tensor  # (batch, position, token)


def slow_twin(states: Tensor, first: nn.Linear, second: nn.Linear) -> SlowResult:
    """Scores, log-partition and expected matrix of a batch of sentences of one length.

    Args:
        states: ``(batch, n + 2, width)``, the states of a bidirectional LSTM over BOS, the sentence and EOS; the first
            half of the width belongs to the forward direction.
        first: the layer from the representations of two spans to the hidden units.
        second: the layer from the hidden units to the scores of the two rules.
    """
    batch, length = states.shape[0], states.shape[1] - 2
    forward, backward = states.chunk(2, dim=-1)

    def span(start: int, end: int) -> Tensor:
        left_to_right = forward[:, end] - forward[:, start]
        right_to_left = backward[:, start + 1] - backward[:, end + 1]
        return torch.cat([left_to_right, right_to_left], dim=-1)  # (batch, width)

    scores = []
    beta = {(start, start + 1): states.new_zeros(batch) for start in range(length)}
    expected = {(start, start + 1): states.new_ones(batch, 1, 1) for start in range(length)}
    for width in range(2, length + 1):
        for start in range(length - width + 1):
            end = start + width
            middles = range(start + 1, end)
            left = torch.stack([span(start, middle) for middle in middles])
            right = torch.stack([span(middle, end) for middle in middles])
            of_splits = second(torch.relu(first(torch.cat([left, right], dim=-1))))  # (split, batch, rule)
            scores += of_splits.unbind()
            options, blocks = [], []
            for score, middle in zip(of_splits, middles, strict=True):
                options.append(score + (beta[start, middle] + beta[middle, end])[:, None])
                blocks += two_blocks(expected[start, middle], expected[middle, end])
            weights = torch.cat(options, dim=-1)  # (batch, options)
            beta[start, end] = weights.logsumexp(-1)
            rules = weights.softmax(-1)
            expected[start, end] = sum(
                rule[:, None, None] * block for rule, block in zip(rules.unbind(-1), blocks, strict=True)
            )
    packed = torch.stack(scores, dim=1) if scores else states.new_zeros(batch, 0, 2)
    return SlowResult(packed, beta[0, length], expected[0, length])


def two_blocks(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """``[[A, 0], [0, B]]`` for the straight rule and ``[[0, B], [A, 0]]`` for the inverted one."""
    size = left.shape[-1] + right.shape[-1]
    straight, inverted = (left.new_zeros(left.shape[0], size, size) for _ in range(2))
    left_size, right_size = left.shape[-1], right.shape[-1]
    straight[:, :left_size, :left_size], straight[:, left_size:, left_size:] = left, right
    inverted[:, right_size:, :left_size], inverted[:, :right_size, left_size:] = left, right
    return straight, inverted
