"""Outputs ranked by both ways: how probable each is for its sentence, and how probable the sentence is for it."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from permalign.decoding.beam import Hypothesis
from permalign.heads.base import Head
from permalign.text.batching import Batch, pad

AT_ONCE = 64  # pairs to score at a time


def ranked_by_both_ways(
    found: list[list[Hypothesis]],
    batch: Batch,
    head: Head,
    log_likelihood: Callable[[Batch], Tensor],
    weight: float,
) -> list[list[Hypothesis]]:
    """The outputs of every sentence, best first by ``log p(output | sentence) + weight log p(sentence | output)``.

    An output from which the sentence cannot be written comes after all others; among such, and among equals, the first
    way alone decides. Scores stay those of the first way.

    Args:
        found: outputs of every sentence.
        batch: the sentences.
        head: of the way back.
        log_likelihood: of the way back, for a batch of outputs and sentences.
        weight: of the way back.
    """
    pairs = [(row, one) for row, hypotheses in enumerate(found) for one in hypotheses]
    ranks: dict[tuple[int, Hypothesis], tuple[float, float]] = {}
    device = batch.source.device
    for start in range(0, len(pairs), AT_ONCE):
        part = pairs[start : start + AT_ONCE]
        rows = torch.tensor([row for row, _ in part], device=device)
        outputs, lengths = (tensor.to(device) for tensor in pad([one.words for _, one in part]))
        there = replace(
            batch,
            source=batch.source[rows],
            source_lengths=batch.source_lengths[rows],
            target=outputs,
            target_lengths=lengths,
        )
        readable = head.can_write(lengths, there.source_lengths)
        scores = torch.full((len(part),), -torch.inf, device=device)
        if bool(readable.any()):
            scores[readable] = log_likelihood(there.turned(readable)).float()
        for (row, one), score in zip(part, scores.tolist(), strict=True):
            ranks[row, one] = (one.score + weight * score if weight else one.score, one.score)
    return [
        sorted(hypotheses, key=lambda one, row=row: ranks[row, one], reverse=True)  # type: ignore[misc]
        for row, hypotheses in enumerate(found)
    ]
