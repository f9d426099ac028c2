"""Relaxed matchings against plain division of rows and columns, and the best matching against all of them."""

from itertools import permutations

import pytest
import torch
from tests.structures.contract import seeded

from permalign.structures.sinkhorn import best_matching, sinkhorn_matrix


def random_scores(batch, words, scale=2.0):
    return scale * torch.randn(batch, words, words, dtype=torch.float64, generator=seeded(words))


def divided(scores, iterations):
    """The same for one sentence in probability space: divide rows by their sums, then columns."""
    matrix = scores.exp()
    for _ in range(iterations):
        matrix = matrix / matrix.sum(1, keepdim=True)
        matrix = matrix / matrix.sum(0, keepdim=True)
    return matrix


@pytest.mark.parametrize("words", [1, 2, 5, 9])
@pytest.mark.parametrize("iterations", [1, 3, 32])
def test_equals_repeated_division_of_rows_and_columns(words, iterations):
    scores = random_scores(2, words)
    for found, one in zip(sinkhorn_matrix(scores, iterations=iterations), scores, strict=True):
        torch.testing.assert_close(found, divided(one, iterations))


def test_rows_and_columns_sum_to_one():
    matrix = sinkhorn_matrix(random_scores(3, 7, scale=1.0))
    torch.testing.assert_close(matrix.sum(1), torch.ones(3, 7, dtype=torch.float64))
    torch.testing.assert_close(matrix.sum(2), torch.ones(3, 7, dtype=torch.float64), rtol=0, atol=1e-4)


def test_padding_is_the_identity_and_changes_nothing():
    scores, lengths = random_scores(2, 6), torch.tensor([4, 6])
    scores[0, 4:] = scores[0, :, 4:] = torch.nan
    matrix = sinkhorn_matrix(scores, lengths)
    torch.testing.assert_close(matrix[0, :4, :4], sinkhorn_matrix(scores[:1, :4, :4])[0])
    assert torch.equal(matrix[0, 4:], torch.eye(6, dtype=torch.float64)[4:])
    assert torch.equal(matrix[0, :, 4:], torch.eye(6, dtype=torch.float64)[:, 4:])


def test_gradients_are_right_and_none_goes_to_padding():
    scores = random_scores(2, 3).requires_grad_()
    lengths = torch.tensor([2, 3])
    assert torch.autograd.gradcheck(lambda given: sinkhorn_matrix(given, lengths, 4), scores)
    (sinkhorn_matrix(scores, lengths, 4) * random_scores(2, 3)).sum().backward()
    assert (scores.grad[0, 2] == 0).all()
    assert (scores.grad[0, :, 2] == 0).all()


def test_large_scores_stay_finite():
    scores = (1e4 * random_scores(1, 5)).float().requires_grad_()
    matrix = sinkhorn_matrix(scores)
    matrix.square().sum().backward()
    assert matrix.isfinite().all()
    assert scores.grad.isfinite().all()


def test_at_a_low_temperature_it_is_the_best_matching():
    scores = random_scores(4, 5)
    order = best_matching(scores)
    matrix = sinkhorn_matrix(scores / 0.01, iterations=500)
    assert torch.equal(matrix.argmax(2), order)


@pytest.mark.parametrize("words", [1, 2, 4, 5])
def test_best_matching_of_all(words):
    scores = random_scores(3, words)
    for order, one in zip(best_matching(scores).tolist(), scores, strict=True):
        best = max(
            permutations(range(words)), key=lambda tokens: sum(one[p, t] for p, t in enumerate(tokens))
        )
        assert tuple(order) == best


def test_best_matching_leaves_padding_in_its_place():
    scores, lengths = random_scores(2, 6), torch.tensor([3, 6])
    scores[0, 3:] = scores[0, :, 3:] = torch.nan
    order = best_matching(scores, lengths)
    assert order[0, 3:].tolist() == [3, 4, 5]
    assert torch.equal(order[0, :3], best_matching(scores[:1, :3, :3])[0])


@pytest.mark.usefixtures("unchecked")
class TestBadInput:
    @pytest.mark.parametrize("function", [sinkhorn_matrix, best_matching])
    def test_scores_that_are_not_square(self, function):
        with pytest.raises(ValueError, match=r"\(position, token\)"):
            function(torch.zeros(2, 3, 4))

    @pytest.mark.parametrize("function", [sinkhorn_matrix, best_matching])
    def test_lengths_out_of_range(self, function):
        with pytest.raises(ValueError, match="lengths goes up to 4"):
            function(torch.zeros(2, 3, 3), torch.tensor([4, 1]))

    def test_no_iterations(self):
        with pytest.raises(ValueError, match="iterations is 0"):
            sinkhorn_matrix(torch.zeros(1, 2, 2), iterations=0)

    def test_not_a_number(self):
        with pytest.raises(ValueError, match="must be finite"):
            best_matching(torch.full((1, 2, 2), torch.nan))
