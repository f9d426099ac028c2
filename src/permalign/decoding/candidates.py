"""Outputs ranked by more than the model that found them: by several together, and by how well they are read back."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log

import torch
from torch import Tensor

from permalign.decoding.beam import Hypothesis
from permalign.heads.base import Head
from permalign.text.batching import Batch, pad

AT_ONCE = 64  # pairs to score at a time

LogLikelihood = Callable[[Tensor, Batch], Tensor]
"""``(pairs,)``, given which sentences the pairs are of, and the pairs as a batch."""


def of_mixture(members: Sequence[LogLikelihood]) -> LogLikelihood:
    """The logarithm of the mean of the members' probabilities."""
    if len(members) == 1:
        return members[0]

    def log_likelihood(rows: Tensor, pairs: Batch) -> Tensor:
        return torch.stack([member(rows, pairs) for member in members]).logsumexp(0) - log(len(members))

    return log_likelihood


def pooled(
    found: Sequence[list[list[Hypothesis]]], batch: Batch, log_likelihood: LogLikelihood
) -> list[list[Hypothesis]]:
    """What several searches found for every sentence, each output once, with another likelihood, best first.

    Args:
        found: by search, and by sentence.
        batch: the sentences.
        log_likelihood: of outputs given their sentences.
    """
    outputs = [dict.fromkeys(one.words for some in row for one in some) for row in zip(*found, strict=True)]
    pairs = [(row, words) for row, some in enumerate(outputs) for words in some]
    scores = dict(zip(pairs, _scores(pairs, batch, log_likelihood), strict=True))
    return [
        sorted((Hypothesis(words, scores[row, words]) for words in some), key=lambda one: -one.score)
        for row, some in enumerate(outputs)
    ]


def ranked_by_both_ways(
    found: list[list[Hypothesis]], batch: Batch, head: Head, log_likelihood: LogLikelihood, weight: float
) -> list[list[Hypothesis]]:
    """The outputs of every sentence, best first by ``log p(output | sentence) + weight log p(sentence | output)``.

    An output from which the sentence cannot be written comes after all others; among such, and among equals, the first
    way alone decides. Scores stay those of the first way.

    Args:
        found: outputs of every sentence.
        batch: the sentences.
        head: of the way back.
        log_likelihood: of the way back, whose pairs are of outputs and sentences.
        weight: of the way back.
    """

    def of_way_back(rows: Tensor, there: Batch) -> Tensor:
        readable = head.supports_lengths(there.target_lengths, there.source_lengths)
        scores = torch.full(readable.shape, -torch.inf, device=readable.device)
        if bool(readable.any()):
            scores[readable] = log_likelihood(rows[readable], there.swap_sides(readable)).float()
        return scores

    pairs = [(row, one) for row, hypotheses in enumerate(found) for one in hypotheses]
    back = _scores([(row, one.words) for row, one in pairs], batch, of_way_back)
    ranks = {
        (row, one): (one.score + weight * score if weight else one.score, one.score)
        for (row, one), score in zip(pairs, back, strict=True)
    }
    return [
        sorted(hypotheses, key=lambda one, row=row: ranks[row, one], reverse=True)  # type: ignore[misc]
        for row, hypotheses in enumerate(found)
    ]


def _scores(
    pairs: Sequence[tuple[int, tuple[int, ...]]], batch: Batch, log_likelihood: LogLikelihood
) -> list[float]:
    """Of outputs with the sentences they belong to, some at a time."""
    device = batch.source.device
    scores: list[float] = []
    for start in range(0, len(pairs), AT_ONCE):
        part = pairs[start : start + AT_ONCE]
        rows = torch.tensor([row for row, _ in part], device=device)
        outputs, lengths = (tensor.to(device) for tensor in pad([words for _, words in part]))
        there = replace(
            batch,
            source=batch.source[rows],
            source_lengths=batch.source_lengths[rows],
            target=outputs,
            target_lengths=lengths,
        )
        scores += log_likelihood(rows, there).tolist()
    return scores
