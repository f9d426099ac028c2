"""The reorderer of the paper: a distribution over separable permutations, scored by what a sentence's splits show."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from permalign.encoders.base import require_options
from permalign.reorderers.base import Reorderer, Reordering
from permalign.reorderers.discrete import matrix_of_order, take_order
from permalign.reorderers.inversion import inversion_penalty, require_prior
from permalign.reorderers.reading import SourceReader
from permalign.reorderers.split_scorer import SplitScorer
from permalign.shapes import Float, Int
from permalign.structures import Derivation, SeparablePermutation

Objective = Literal["soft", "hard", "samples", "exact"]
Decoding = Literal["greedy", "viterbi", "permutation", "marginal"]

Straight = Literal["scored", "free"]


class SeparableReorderer(Reorderer):
    """Scores every split of a sentence, and reorders by the distribution over separable permutations they make.

    In training, by ``objective``:

    - ``soft``: the expected permutation matrix;
    - ``hard``: one exact sample, with the gradient of its relaxation (straight-through Gumbel-softmax);
    - ``samples``: several such samples, for the bound ``-log (1/K) sum_k p(y | M_k x)``;
    - ``exact``: none; states keep their order, and a head that can sums over all orders itself.

    In evaluation, whatever the objective, by ``decoding``:

    - ``greedy``: the best option of every span from the root down, as the paper does;
    - ``viterbi``: the most probable derivation;
    - ``permutation``: the most probable order, summed over its derivations;
    - ``marginal``: no order at all, but the expected matrix.

    Reading is O(n), scoring O(n^3 hidden), matrices are O(n^4), derivations O(n^3).

    Args:
        words: the size of the vocabulary, with the specials.
        embedding: the width of the words' vectors.
        embeddings: vectors to share with a head (see `SourceReader`); None makes new ones.
        encoder: ``bilstm``, ``transformer``, ``sums``, or ``none`` where the vectors have their context already.
        width: of the states, even.
        layers: of the encoder.
        attention_heads: of a Transformer.
        sums: of an encoder that sums.
        hidden: units of the split scorer; None means 4 * width, as in the paper.
        dropout: of the encoder and of the split scorer's hidden layer.
        objective: how to train.
        decoding: how to choose an order in evaluation.
        straight: ``scored``, or ``free``: every split's scores are taken relative to its straight rule, so that only
            inversions weigh. In sentences longer than those it was trained on, scores of straight rules (most of a
            tree) then cannot outweigh the inversions.
        temperature: of ``hard`` and ``samples``; the paper searches 0.1 to 10.
        samples: how many of them, K.
        normal_form: give every permutation exactly one derivation.
        inversion_rate: the share of inverted nodes to expect, between 0 and 1; None for no such prior.
        inversion_weight: of that prior's cross-entropy in the loss.

    >>> reorderer = SeparableReorderer(words=9, embedding=6, width=8, decoding="viterbi").eval()
    >>> source, lengths = torch.tensor([[4, 5, 6, 7], [8, 4, 0, 0]]), torch.tensor([4, 2])
    >>> reordering = reorderer(source, lengths, torch.randn(2, 4, 3))
    >>> reordering.states.shape, reordering.order[1, 2:]  # padding keeps its place
    (torch.Size([2, 4, 3]), tensor([2, 3]))
    """

    def __init__(
        self,
        words: int,
        embedding: int,
        *,
        embeddings: nn.Module | None = None,
        encoder: str = "bilstm",
        width: int = 256,
        layers: int = 1,
        attention_heads: int = 4,
        sums: int = 4,
        hidden: int | None = None,
        dropout: float = 0.0,
        objective: Objective = "hard",
        decoding: Decoding = "greedy",
        straight: Straight = "scored",
        temperature: float = 1.0,
        samples: int = 4,
        normal_form: bool = False,
        inversion_rate: float | None = None,
        inversion_weight: float = 1.0,
    ) -> None:
        super().__init__()
        _require_choice("decoding", decoding, get_args(Decoding))
        _require_choice("straight", straight, get_args(Straight))
        if not temperature > 0:
            raise ValueError(
                f"temperature is {temperature}, but must be above 0. The paper searches 0.1 to 10."
            )
        require_options(samples=samples)
        require_prior(inversion_rate, inversion_weight)
        self.reader = SourceReader(
            words,
            embedding,
            embeddings=embeddings,
            encoder=encoder,
            width=width,
            layers=layers,
            attention_heads=attention_heads,
            sums=sums,
            dropout=dropout,
        )
        self.scorer = SplitScorer(width, 4 * width if hidden is None else hidden, dropout)
        self.use_objective(objective)
        self.decoding, self.normal_form = decoding, normal_form
        self.straight, self.temperature, self.samples = straight, temperature, samples
        self.inversion_rate, self.inversion_weight = inversion_rate, inversion_weight

    def use_objective(self, objective: Objective) -> None:
        """Train by this objective from now on; all of them learn the same parameters."""
        _require_choice("objective", objective, get_args(Objective))
        self.objective = objective
        self.marginalises = objective == "exact"

    def extra_repr(self) -> str:
        """What `repr` says beside the layers."""
        return f"objective={self.objective!r}, decoding={self.decoding!r}, normal_form={self.normal_form}"

    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """Reorder by the objective in training, by the decoding in evaluation; the distribution comes with it."""
        distribution = self.distribution(source, lengths)
        return self._train(distribution, states) if self.training else self._decode(distribution, states)

    def distribution(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]
    ) -> SeparablePermutation:
        """Over the orders of every sentence."""
        scores = self.scorer(self.reader(source, lengths, fences=True), lengths)
        if self.straight == "free":
            scores = scores - scores[..., :1]
        return SeparablePermutation(scores, lengths, self.normal_form, validate_args=False)

    def _train(self, distribution: SeparablePermutation, states: Tensor) -> Reordering:
        penalties = {}
        if self.inversion_rate is not None:
            rate = inversion_penalty(distribution.rule_marginals(), self.inversion_rate)
            penalties["inversion_prior"] = self.inversion_weight * rate
        if self.objective == "exact":
            return Reordering(states, distribution=distribution, penalties=penalties)
        copies = self.samples if self.objective == "samples" else 1
        if self.objective == "soft":
            matrix = distribution.expected_matrix()
        else:
            rows = torch.arange(states.shape[0], device=states.device).repeat(copies)
            many = distribution if copies == 1 else distribution.select(rows)
            matrix = many.relaxed_sample(self.temperature, hard=True)
        reordered = matrix @ states.repeat(copies, 1, 1)
        return Reordering(reordered, copies, matrix, distribution=distribution, penalties=penalties)

    def _decode(self, distribution: SeparablePermutation, states: Tensor) -> Reordering:
        if self.decoding == "marginal":
            matrix = distribution.expected_matrix()
            return Reordering(matrix @ states, matrix=matrix, distribution=distribution)
        derivations = None
        if self.decoding == "permutation":
            order = distribution.most_probable_order(derivations=200).order
        else:
            greedy = self.decoding == "greedy"
            derivations = distribution.greedy_derivation() if greedy else distribution.best_derivation()
            order = _orders(derivations, states)
        return Reordering(
            take_order(states, order),
            matrix=matrix_of_order(order, states),
            order=order,
            distribution=distribution,
            derivations=derivations,
        )


def _orders(derivations: list[Derivation], states: Tensor) -> Tensor:
    """The orders of derivations, with padding in its place."""
    order = torch.arange(states.shape[1], device=states.device).repeat(len(derivations), 1)
    for row, derivation in enumerate(derivations):
        order[row, : len(derivation.order)] = torch.tensor(derivation.order, device=order.device)
    return order


def _require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(choices)}.")
