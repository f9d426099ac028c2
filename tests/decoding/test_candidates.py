"""Candidates of an ensemble that cannot be best are found without all their probabilities."""

import numpy as np
import pytest

from permalign.decoding.candidates import may_be_best


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


def test_candidates_that_are_all_wanted_are_kept():
    assert may_be_best(np.log([[0.9], [0.1]]), [1, 1], count=2).all()
    assert may_be_best(np.empty((0, 2)), [], count=1).shape == (0,)
