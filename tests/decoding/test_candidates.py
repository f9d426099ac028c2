"""Candidates are scored with their sentences and reranked, and those that cannot be best are left out."""

from math import inf, nan

import numpy as np
import pytest
import torch

from permalign.decoding.beam import SearchSettings
from permalign.decoding.candidates import (
    PAIRS_AT_ONCE,
    Candidate,
    beam_candidates,
    log_mean_exp,
    may_be_best,
    merge,
    rerank,
    rescore,
    score_candidates,
)
from permalign.errors import UsageError
from permalign.heads.base import Decoder
from permalign.text.batching import Batch, pad
from permalign.text.codec import END_ID

SOURCES = [[7, 8], [9], [4, 5, 6]]


def sentences(copies=None):
    nothing, zeros = pad([[] for _ in SOURCES])
    return Batch(*pad(SOURCES), nothing, zeros, (), (), copies)


def likelihood(rows, pairs):
    """A number for every pair of a sentence and an output, which depends on both and on no padding."""
    assert len(pairs.source) == len(rows) <= PAIRS_AT_ONCE
    for row, source, length in zip(
        rows.tolist(), pairs.source.tolist(), pairs.source_lengths.tolist(), strict=True
    ):
        assert source[:length] == SOURCES[row]
    lengths = pairs.target_lengths
    assert [len(row) for row in pairs.target] == [int(lengths.max())] * len(rows)
    return -(10.0 * rows + pairs.target.sum(1) + 0.5 * lengths)


def expected_score(row, tokens):
    return -(10.0 * row + sum(tokens) + 0.5 * len(tokens))


def candidates(count):
    """Each sentence has a different number of distinct candidates."""
    return [[Candidate((4 + n,) * (1 + n % 3), nan) for n in range(count * row)] for row in range(3)]


@pytest.mark.parametrize("count", [1, 5, PAIRS_AT_ONCE])
def test_every_pair_is_scored_once_however_many_there_are(count):
    found = candidates(count)
    expected = [expected_score(row, one.tokens) for row, ones in enumerate(found) for one in ones]
    assert score_candidates(found, sentences(), likelihood) == expected


def test_what_is_copied_belongs_to_the_sentence_of_a_pair():
    copies = torch.arange(9).view(3, 3)
    seen = []
    found = [[Candidate((4,), nan)], [], [Candidate((4,), nan), Candidate((5, 6), nan)]]
    score_candidates(
        found, sentences(copies), lambda rows, pairs: seen.append(pairs.copies.tolist()) or rows.double()
    )
    assert seen == [[[0, 1, 2], [6, 7, 8], [6, 7, 8]]]


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_candidates_are_sorted_by_their_scores_and_lengths(length_penalty):
    for row, ones in enumerate(rescore(candidates(4), sentences(), likelihood, length_penalty)):
        assert len(ones) == 4 * row
        assert [one.score for one in ones] == [expected_score(row, one.tokens) for one in ones]
        ranks = [one.score / (len(one.tokens) + 1) ** length_penalty for one in ones]
        assert ranks == sorted(ranks, reverse=True)


def reranked(weight, *pairs, length_penalty=0.0):
    """The order of candidates, each given by its score and by the log-probability of the sentence given it."""
    found = [[Candidate((4,) * (number + 1), score) for number, (score, _) in enumerate(pairs)], [], []]
    inverse = torch.tensor([score for _, score in pairs])
    ordered, *others = rerank(found, sentences(), lambda rows, batch: inverse, weight, length_penalty)
    assert others == [[], []]
    return [len(one.tokens) - 1 for one in ordered]


def test_a_noisy_channel_adds_the_weighted_inverse():
    assert reranked(0.0, (-1.0, -inf), (-2.0, 0.0)) == [0, 1]
    assert reranked(0.5, (-1.0, -5.0), (-2.0, -2.0)) == [1, 0]
    assert reranked(0.5, (-1.0, -3.0), (-2.5, -2.0)) == [0, 1]
    assert reranked(1.0, (-9.0, -inf), (-3.0, -inf), (-20.0, -1.0)) == [2, 1, 0]
    assert reranked(1.0, (-3.0, -1.0), (-2.0, -2.0)) == [1, 0]  # equal: the direct model decides
    assert reranked(1.0, (-4.0, -1.0), (-4.5, -1.0), length_penalty=1.0) == [1, 0]


def test_equal_outputs_of_several_searches_are_one_candidate():
    first = [[Candidate((7,), -1.0), Candidate((8,), -2.0)], []]
    second = [[Candidate((8,), -3.0)], [Candidate((9,), -4.0)]]
    merged = merge([first, second])
    assert [[(one.tokens, one.score, one.found_by) for one in ones] for ones in merged] == [
        [((7,), -1.0, ((0, -1.0),)), ((8,), -2.0, ((0, -2.0), (1, -3.0)))],
        [((9,), -4.0, ((1, -4.0),))],
    ]


def test_a_mixture_has_the_mean_of_the_probabilities():
    probs = torch.tensor([[0.1, 0.9], [0.3, 0.0], [0.2, 0.3]])  # (models, outputs)
    torch.testing.assert_close(log_mean_exp(list(probs.log())).exp(), probs.mean(0))


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_the_best_are_never_left_out(seed, count, length_penalty):
    random = np.random.default_rng(seed)
    # (candidates, models); two of the eight outputs are no candidates
    probs = random.dirichlet(np.full(8, 0.2), size=3).T[:6]
    lengths = random.integers(0, 5, size=6)
    known = np.where(random.random(probs.shape) < 0.6, np.log(probs), np.nan)
    ranks = np.log(probs.mean(1)) / (lengths + 1.0) ** length_penalty
    best = ranks.argsort()[-count:]
    assert may_be_best(known, lengths.tolist(), count, length_penalty)[best].all()


def test_nothing_is_left_out_if_little_is_known():
    unlikely = np.array([[-40.0, np.nan], [np.nan, -50.0]])
    assert may_be_best(unlikely, [1, 1], count=1).all()


def test_a_model_that_is_certain_leaves_nothing_to_others():
    assert may_be_best(np.array([[0.0], [np.nan]]), [1, 1], count=1).tolist() == [True, False]


def test_candidates_that_are_all_wanted_are_kept():
    assert may_be_best(np.log([[0.9], [0.1]]), [1, 1], count=2).all()
    assert may_be_best(np.empty((0, 2)), [], count=1).shape == (0,)


def test_candidates_that_cannot_be_best_are_left_out():
    log_probs = np.log([[0.6, 0.5], [0.2, np.nan], [np.nan, 0.3], [0.05, 0.05]])
    # what is unknown is at most 0.15 in the first model and in the second
    assert may_be_best(log_probs, [4] * 4, count=1).tolist() == [True, False, False, False]
    assert may_be_best(log_probs, [4] * 4, count=2).tolist() == [True, True, True, False]
    # divided by their lengths, a long output of little probability is the best
    assert may_be_best(np.log([[0.6], [0.1]]), [0, 9], count=1, length_penalty=1.0).tolist() == [False, True]


class OneWord(Decoder):
    """Two sentences, whose outputs are one word: token 4 or token 5."""

    PROBABILITIES = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.75, 0.25])

    def __init__(self):
        self.prefixes = [(), ()]

    def scores(self):
        ended = torch.eye(6)[END_ID]
        return torch.stack(
            [
                self.PROBABILITIES[prefix[0]] * ended if prefix else self.PROBABILITIES
                for prefix in self.prefixes
            ]
        ).log()

    def extend(self, rows, tokens):
        self.prefixes = [
            (*self.prefixes[row], token) for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)
        ]


def test_a_beam_finds_outputs_with_their_log_probabilities():
    found = beam_candidates(OneWord(), [3, 3], SearchSettings(beam=2), 2, same_length=False)
    assert [[one.tokens for one in ones] for ones in found] == [[(4,), (5,)]] * 2
    for ones in found:
        assert [one.score for one in ones] == pytest.approx([np.log(0.75), np.log(0.25)])


def test_only_sums_over_orders_are_searched_exactly():
    with pytest.raises(UsageError, match="sum over orders"):
        beam_candidates(OneWord(), [3, 3], SearchSettings(search="exact"), 1, same_length=False)
