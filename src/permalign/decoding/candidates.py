"""Candidate outputs of a batch of sentences: scored by a model, and reranked by a noisy channel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log

import torch
from torch import Tensor

from permalign.decoding.beam import normalised_score
from permalign.structures import Derivation
from permalign.text.batching import Batch, pad

PAIRS_AT_ONCE = 64
"""How many pairs of a sentence and a candidate are scored in one batch."""

LogLikelihood = Callable[[Tensor, Batch], Tensor]
"""The log-likelihoods ``(pairs,)`` of a batch of pairs, given the row of each pair's sentence among all sentences."""


@dataclass(frozen=True)
class Candidate:
    """An output that was found for a sentence.

    Attributes:
        tokens: its token ids.
        score: its log-probability; NaN until it is computed, where the search does not yield it.
        derivation: the derivation in whose order it was found; None for the reorderer's own choice.
    """

    tokens: tuple[int, ...]
    score: float
    derivation: Derivation | None = None


Candidates = list[list[Candidate]]
"""The candidates of every sentence of a batch."""


def merge(searches: Sequence[Candidates]) -> Candidates:
    """The candidates that several searches found for the same sentences; of equal outputs, the first is kept."""
    merged = []
    for of_sentence in zip(*searches, strict=True):
        unique: dict[tuple[int, ...], Candidate] = {}
        for candidates in of_sentence:
            for candidate in candidates:
                unique.setdefault(candidate.tokens, candidate)
        merged.append(list(unique.values()))
    return merged


def rescore(
    candidates: Candidates, batch: Batch, log_likelihood: LogLikelihood, length_penalty: float = 0.0
) -> Candidates:
    """Give all candidates of a batch of sentences their log-likelihood as score, and sort them by `rank`."""
    scores = iter(_scores(candidates, batch, log_likelihood))
    return [
        sorted(
            (replace(candidate, score=next(scores)) for candidate in of_sentence),
            key=lambda candidate: -rank(candidate, length_penalty),
        )
        for of_sentence in candidates
    ]


def rank(candidate: Candidate, length_penalty: float) -> float:
    """What candidates are compared by: the score, normalised by the length."""
    return normalised_score(candidate.score, len(candidate.tokens), length_penalty)


def rerank(
    candidates: Candidates,
    batch: Batch,
    inverse_log_likelihood: LogLikelihood,
    weight: float,
    length_penalty: float = 0.0,
) -> Candidates:
    """Sort candidates by a noisy channel, ``log p(output | sentence) + weight * log p(sentence | output)``.

    A candidate from which the inverse model cannot write the sentence comes after all others (unless the weight is 0).
    Among those, and among equals, ``log p(output | sentence)`` decides. It also remains the score.

    Args:
        candidates: the candidates of every sentence, scored by ``log p(output | sentence)``.
        batch: the sentences.
        inverse_log_likelihood: computes ``log p(sentence | output)`` of pairs.
        weight: the weight of the inverse model.
        length_penalty: the exponent of the length by which ``log p(output | sentence)`` is divided.
    """

    def as_float(rows: Tensor, pairs: Batch) -> Tensor:
        return inverse_log_likelihood(rows, pairs).float()

    inverse = iter(_scores(candidates, batch, as_float))
    reranked = []
    for of_sentence in candidates:
        channel = [next(inverse) for _ in of_sentence]
        ranks = [
            (direct + weight * score if weight else direct, direct)
            for direct, score in zip(
                (rank(candidate, length_penalty) for candidate in of_sentence), channel, strict=True
            )
        ]
        order = sorted(range(len(of_sentence)), key=ranks.__getitem__, reverse=True)
        reranked.append([of_sentence[index] for index in order])
    return reranked


def log_mean_exp(log_likelihoods: Sequence[Tensor]) -> Tensor:
    """The log-likelihood of a uniform mixture.

    >>> log_mean_exp([torch.tensor([0.25]).log(), torch.tensor([0.75]).log()]).exp()
    tensor([0.5000])
    """
    return torch.stack(list(log_likelihoods)).logsumexp(0) - log(len(log_likelihoods))


def _scores(candidates: Candidates, batch: Batch, log_likelihood: LogLikelihood) -> list[float]:
    """The log-likelihoods of all candidates, sentence by sentence."""
    device = batch.source.device
    pairs = [
        (row, candidate.tokens) for row, of_sentence in enumerate(candidates) for candidate in of_sentence
    ]
    scores: list[float] = []
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        chunk = pairs[start : start + PAIRS_AT_ONCE]
        rows = torch.tensor([row for row, _ in chunk], device=device)
        outputs, lengths = (tensor.to(device) for tensor in pad([tokens for _, tokens in chunk]))
        scored = replace(
            batch,
            source=batch.source[rows],
            source_lengths=batch.source_lengths[rows],
            target=outputs,
            target_lengths=lengths,
            copies=None if batch.copies is None else batch.copies[rows],
        )
        scores += log_likelihood(rows, scored).tolist()
    return scores
