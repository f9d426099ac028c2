"""The paper's method as its authors run it: the baseline of every ratio, and the oracle of the fast path.

One Python loop over spans and, inside, one over splits. Every split has its own concatenated span
representations and its own pass through the multi-layer perceptron; every span sums block matrices of its
parts, weighted by the rules, from the narrowest to the widest, which is O(n^5). Everything is batched over
sentences of one length, and autograd does the rest.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class SlowResult(NamedTuple):
    """What the fast path is compared with."""

    scores: Tensor  # (batch, split, rule), packed by width
    log_partition: Tensor  # (batch,)
    expected_matrix: Tensor  # (batch, position, token)


def slow_twin(states: Tensor, first: nn.Linear, second: nn.Linear) -> SlowResult:
    """Scores, log-partition and expected matrix of a batch of sentences of one length.

    ``states`` are ``(batch, n + 2, width)``, of a bidirectional LSTM over BOS, the sentence and EOS; the
    first half of the width is the forward direction's. ``first`` leads from two spans to the hidden units,
    ``second`` from there to the two rules.
    """
    batch, words = states.shape[0], states.shape[1] - 2
    forward, backward = states.chunk(2, dim=-1)

    def span(start: int, end: int) -> Tensor:
        left_to_right = forward[:, end] - forward[:, start]
        right_to_left = backward[:, start + 1] - backward[:, end + 1]
        return torch.cat([left_to_right, right_to_left], dim=-1)  # (batch, width)

    scores = []
    beta = {(start, start + 1): states.new_zeros(batch) for start in range(words)}
    expected = {(start, start + 1): states.new_ones(batch, 1, 1) for start in range(words)}
    for width in range(2, words + 1):
        for start in range(words - width + 1):
            end = start + width
            options, blocks = [], []
            for middle in range(start + 1, end):
                pair = torch.cat([span(start, middle), span(middle, end)], dim=-1)
                score = second(torch.relu(first(pair)))  # (batch, rule)
                scores.append(score)
                options.append(score + (beta[start, middle] + beta[middle, end])[:, None])
                blocks += two_blocks(expected[start, middle], expected[middle, end])
            weights = torch.cat(options, dim=-1)  # (batch, options)
            beta[start, end] = weights.logsumexp(-1)
            rules = weights.softmax(-1)
            expected[start, end] = sum(
                rule[:, None, None] * block for rule, block in zip(rules.unbind(-1), blocks, strict=True)
            )
    packed = torch.stack(scores, dim=1) if scores else states.new_zeros(batch, 0, 2)
    return SlowResult(packed, beta[0, words], expected[0, words])


def two_blocks(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """``[[A, 0], [0, B]]`` for the straight rule and ``[[0, B], [A, 0]]`` for the inverted one."""
    size = left.shape[-1] + right.shape[-1]
    straight, inverted = (left.new_zeros(left.shape[0], size, size) for _ in range(2))
    cut, turn = left.shape[-1], right.shape[-1]
    straight[:, :cut, :cut], straight[:, cut:, cut:] = left, right
    inverted[:, turn:, :cut], inverted[:, :turn, cut:] = left, right
    return straight, inverted
