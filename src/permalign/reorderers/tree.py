"""The base class of reorderers by trees: how a distribution over derivations becomes a reordering."""

from abc import abstractmethod
from dataclasses import replace
from typing import Literal, get_args

from torch import Tensor

from permalign.checks import require_at_least_one
from permalign.reorderers.base import Reorderer, Reordering
from permalign.reorderers.discrete_order import matrix_of_order, take_order
from permalign.reorderers.inversion_prior import InversionPrior
from permalign.reorderers.objectives import Objective, reorder_by_objective
from permalign.shapes import Float, Int
from permalign.structures import OrderDistribution

Decoding = Literal["greedy", "viterbi", "permutation", "marginal"]


class TreeReorderer(Reorderer):
    """Reorders by a distribution over separable permutations, which subclasses define in `distribution`.

    In training it reorders by ``objective``; `permalign.reorderers.objectives` says what each of them does.

    In evaluation, whatever the objective, by ``decoding``:

    - ``greedy``: the best rule of every span from the root down, as the paper does;
    - ``viterbi``: the most probable derivation;
    - ``permutation``: the most probable order, summed over its derivations;
    - ``marginal``: no order at all, but the expected matrix.

    Args:
        objective: how to train.
        decoding: how to choose an order in evaluation.
        temperature: the temperature of ``hard`` and ``samples``; the paper searches 0.1 to 10.
        num_samples: K, the number of samples of the objective ``samples``.
        inversion_prior: a prior on the share of inverted rules, which adds a term to the loss; None for no prior.
    """

    def __init__(
        self,
        *,
        objective: Objective,
        decoding: Decoding,
        temperature: float,
        num_samples: int,
        inversion_prior: InversionPrior | None,
    ) -> None:
        super().__init__()
        require_choice("decoding", decoding, get_args(Decoding))
        if not temperature > 0:
            raise ValueError(
                f"temperature is {temperature}, but must be above 0. The paper searches 0.1 to 10."
            )
        require_at_least_one(num_samples=num_samples)
        if inversion_prior is not None:
            inversion_prior.require_valid()
        self.use_objective(objective)
        self.decoding = decoding
        self.temperature, self.num_samples = temperature, num_samples
        self.inversion_prior = inversion_prior

    def use_objective(self, objective: Objective) -> None:
        """Train by this objective from now on; all objectives have the same parameters."""
        require_choice("objective", objective, get_args(Objective))
        self.objective = objective
        self.sums_over_orders = objective == "exact"

    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """Reorder by the objective in training and by the decoding in evaluation; return the distribution as well."""
        distribution = self.distribution(source, lengths)
        return self._train(distribution, states) if self.training else self._decode(distribution, states)

    @abstractmethod
    def distribution(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]
    ) -> OrderDistribution:
        """The distribution over the orders of every sentence."""

    def _train(self, distribution: OrderDistribution, states: Tensor) -> Reordering:
        penalties = {}
        if self.inversion_prior is not None:
            penalties["inversion_prior"] = self.inversion_prior.penalty(distribution.rule_marginals())
        reordering = reorder_by_objective(
            self.objective, distribution, states, self.temperature, self.num_samples
        )
        return replace(reordering, penalties=penalties)

    def _decode(self, distribution: OrderDistribution, states: Tensor) -> Reordering:
        if self.decoding == "marginal":
            matrix = distribution.expected_matrix()
            return Reordering(matrix @ states, matrix=matrix, distribution=distribution)
        find_derivations = None
        if self.decoding == "permutation":
            order = distribution.most_probable_order(derivations=200).order
        elif self.decoding == "greedy":
            order, find_derivations = distribution.greedy_order(), distribution.greedy_derivation
        else:
            order, find_derivations = distribution.best_order(), distribution.best_derivation
        return Reordering(
            take_order(states, order),
            matrix=matrix_of_order(order, states),
            order=order,
            distribution=distribution,
            find_derivations=find_derivations,
        )


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Check that a value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(choices)}.")
