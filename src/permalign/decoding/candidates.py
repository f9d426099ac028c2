"""Candidate outputs of a batch of sentences: scored by a model, and reranked by a noisy channel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from permalign.decoding.beam import SearchSettings, beam_search, normalised_score
from permalign.errors import UsageError
from permalign.heads.base import Decoder
from permalign.structures import Derivation
from permalign.text.batching import Batch, pad

ROUNDING = 1e-4
"""By how much log-probabilities in single precision may be wrong, and more."""

PAIRS_AT_ONCE = 64
"""How many pairs of a sentence and a candidate are scored in one batch."""

Floats = NDArray[np.float64]

LogLikelihood = Callable[[Tensor, Batch], Tensor]
"""The log-likelihoods ``(pairs,)`` of a batch of pairs, given the row of each pair's sentence among all sentences."""


@dataclass(frozen=True)
class Candidate:
    """An output that was found for a sentence.

    Attributes:
        tokens: its token ids.
        score: its log-probability; NaN until it is computed, where the search does not yield it.
        derivation: the derivation in whose order it was found; None for the reorderer's own choice.
        found_by: the members of an ensemble whose searches found it, each with its score.
    """

    tokens: tuple[int, ...]
    score: float
    derivation: Derivation | None = None
    found_by: tuple[tuple[int, float], ...] = ()


Candidates = list[list[Candidate]]
"""The candidates of every sentence of a batch."""


def beam_candidates(
    decoder: Decoder, max_lengths: Sequence[int], settings: SearchSettings, count: int, same_length: bool
) -> Candidates:
    """The outputs of one beam search, whose scores are their log-probabilities.

    Args:
        decoder: a decoder with one row for each sentence, before the first token.
        max_lengths: the maximum output length of each sentence.
        settings: how to search.
        count: how many outputs to return for each sentence.
        same_length: whether outputs have exactly their maximum length.

    Raises:
        UsageError: an exact search was asked for.
    """
    if settings.search == "exact":
        raise UsageError(
            "an exact search is possible only for models that sum over orders (reorderer.objective: exact). Use "
            "beam search."
        )
    searches = beam_search(
        decoder,
        max_lengths,
        settings.beam,
        count,
        settings.constraints,
        same_length,
        settings.length_penalty,
    )
    return [
        [Candidate(hypothesis.tokens, hypothesis.score) for hypothesis in hypotheses]
        for hypotheses in searches
    ]


def merge(searches: Sequence[Candidates]) -> Candidates:
    """The candidates that several searches found for the same sentences, and which of the searches found each.

    Of equal outputs, the first is kept.

    >>> first, second = Candidate((7,), -1.0), Candidate((7,), -2.0)
    >>> merge([[[first]], [[second]]])[0][0].found_by
    ((0, -1.0), (1, -2.0))
    """
    merged = []
    for of_sentence in zip(*searches, strict=True):
        unique: dict[tuple[int, ...], Candidate] = {}
        for number, candidates in enumerate(of_sentence):
            for candidate in candidates:
                same = unique.get(candidate.tokens, candidate)
                unique[candidate.tokens] = replace(same, found_by=(*same.found_by, (number, candidate.score)))
        merged.append(list(unique.values()))
    return merged


def rescore(
    candidates: Candidates, batch: Batch, log_likelihood: LogLikelihood, length_penalty: float = 0.0
) -> Candidates:
    """Give all candidates of a batch of sentences their log-likelihood as score, and sort them by `rank`."""
    scores = iter(score_candidates(candidates, batch, log_likelihood))
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

    inverse = iter(score_candidates(candidates, batch, as_float))
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


def may_be_best(
    log_probs: Floats, lengths: Sequence[int], count: int, length_penalty: float = 0.0
) -> NDArray[np.bool_]:
    """Which candidates may be among the best by the mean of several models' probabilities, of which some are unknown.

    The probabilities of all outputs sum to one. So an unknown probability is at most what a model's known ones leave.

    Args:
        log_probs: ``(candidates, models)``, the log-probabilities of distinct outputs; NaN where they are unknown.
        lengths: the lengths of the outputs.
        count: how many of the best are wanted.
        length_penalty: the exponent of the length by which log-probabilities are divided.

    >>> may_be_best(np.log([[0.8, 0.7], [0.1, np.nan], [np.nan, 0.2]]), [4, 4, 4], count=1)
    array([ True, False, False])
    """
    unknown = np.isnan(log_probs)
    known = np.exp(np.where(unknown, -np.inf, log_probs))
    left = np.maximum(1 - known.sum(0), 0) + ROUNDING
    divisors = np.array([length + 1.0 for length in lengths]) ** length_penalty
    with np.errstate(divide="ignore"):  # log 0
        least = np.log(known.mean(1)) / divisors
        most = np.log(np.where(unknown, left, known).mean(1)) / divisors
    if len(least) <= count:
        return np.ones(len(least), np.bool_)
    within: NDArray[np.bool_] = most >= np.sort(least)[-count] - ROUNDING
    return within


def score_candidates(candidates: Candidates, batch: Batch, log_likelihood: LogLikelihood) -> list[float]:
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
