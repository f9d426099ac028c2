"""Matchings of tokens and positions: relaxed (Sinkhorn's doubly stochastic matrix), and the best one (Hungarian)."""

import torch
from torch import Tensor

from permalign.checks import (
    require_floats,
    require_lengths,
    require_range,
    require_scores,
    shape_of,
    should_validate,
)
from permalign.errors import PermalignError
from permalign.kernels.layout import inside_square
from permalign.shapes import Float, Int


def sinkhorn_matrix(
    scores: Float[Tensor, "batch position token"],
    lengths: Int[Tensor, " batch"] | None = None,
    iterations: int = 32,
    validate_args: bool | None = None,
) -> Float[Tensor, "batch position token"]:
    """A matrix whose rows and columns (nearly) sum to one, by normalising them in turn in log space. O(iterations n^2).

        X <- X - logsumexp over tokens,   X <- X - logsumexp over positions,   again and again;   matrix = exp(X)

    (Sinkhorn, 1964; Adams and Zemel, 2011; Mena et al., 2018.) After an iteration the columns sum to one
    exactly, and the rows only once it has converged. Every iteration is two softmaxes, through which gradients flow. At
    padding the matrix is the identity.

    Args:
        scores: how well each token suits each position, already divided by a temperature if there is one.
        lengths: the lengths of the sentences; None means n for all.
        iterations: the number of iterations.
        validate_args: whether to check the values of the scores; None means torch's default.

    >>> sinkhorn_matrix(torch.tensor([[[3.0, 1.0], [1.0, 3.0]]]).log())
    tensor([[[0.7500, 0.2500],
             [0.2500, 0.7500]]])
    """
    lengths = _require_square(scores, lengths)
    if iterations < 1:
        raise ValueError(f"iterations is {iterations}, but must be at least 1. The paper uses 32.")
    length = scores.shape[1]
    inside = inside_square(lengths, length)
    if should_validate(validate_args):
        require_scores("scores", scores, inside)
    diagonal = torch.eye(length, dtype=torch.bool, device=scores.device)
    logs = scores.masked_fill(~inside, -torch.inf).masked_fill(~inside & diagonal, 0.0)
    for _ in range(iterations):
        logs = logs.log_softmax(2).log_softmax(1)
    return logs.exp()


def best_matching(
    scores: Float[Tensor, "batch position token"], lengths: Int[Tensor, " batch"] | None = None
) -> Int[Tensor, "batch n"]:
    """The order with the greatest sum of scores, by the Hungarian algorithm of SciPy. O(n^3).

    It is the limit of `sinkhorn_matrix` at temperature zero; normalising rows and columns does not change it. Padding
    keeps its place.

    Args:
        scores: how well each token suits each position.
        lengths: the lengths of the sentences; None means n for all.

    >>> best_matching(torch.tensor([[[1.0, 3.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 0.0]]]), torch.tensor([2]))
    tensor([[1, 0, 2]])
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise PermalignError('The best matching needs SciPy: pip install "permalign[models]".') from None
    lengths = _require_square(scores, lengths)
    require_scores("scores", scores, inside_square(lengths, scores.shape[1]))
    orders = torch.arange(scores.shape[1]).repeat(scores.shape[0], 1)
    for row, length in enumerate(lengths.tolist()):
        square = scores[row, :length, :length].detach().double().cpu().numpy()
        orders[row, :length] = torch.from_numpy(linear_sum_assignment(square, maximize=True)[1])
    return orders.to(scores.device)


def _require_square(scores: Tensor, lengths: Tensor | None) -> Tensor:
    require_floats({"scores": scores})
    if scores.dim() != 3 or scores.shape[1] != scores.shape[2] or scores.shape[1] < 1:
        raise ValueError(
            f"scores has shape {shape_of(scores)}, but must be (batch, n, n): (position, token)."
        )
    lengths = require_lengths("lengths", lengths, "scores", scores, scores.shape[1])
    require_range("lengths", lengths, "scores", scores, scores.shape[1])
    return lengths
