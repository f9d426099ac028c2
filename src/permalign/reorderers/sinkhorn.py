"""A reorderer without trees: relaxed one-to-one matchings of words to positions (Mena et al., 2018)."""

from typing import cast

from torch import Tensor, nn

from permalign.checks import require_at_least_one
from permalign.kernels.sampling import gumbel_noise
from permalign.reorderers.base import Reorderer, Reordering
from permalign.reorderers.discrete_order import matrix_of_order, take_order
from permalign.reorderers.source_encoder import SourceEncoder
from permalign.shapes import Float, Int
from permalign.structures.sinkhorn import best_matching, sinkhorn_matrix


class SinkhornReorderer(Reorderer):
    """Sinkhorn attention: positions query tokens, and normalisation makes the attention one to one.

        score(position, token) = query(state of the position) . key(state of the token)
        M = sinkhorn((score + Gumbel noise) / temperature)

    The state of a position is that of the source word at this position. Noise is added in training only; a lower
    temperature brings the matrix closer to a single permutation. Any permutation can be learned, separable or not.
    O(n^2 (hidden_size + num_iterations)).

    Args:
        source_encoder: reads the source; queries and keys have the size of its states.
        num_iterations: the number of row and column normalisations; the paper has 32.
        temperature: the temperature of the relaxation, above 0.
        hungarian: whether to take the best matching at test time, a true permutation (needs SciPy), instead of the
            relaxed one.
    """

    def __init__(
        self,
        source_encoder: SourceEncoder,
        *,
        num_iterations: int,
        temperature: float = 1.0,
        hungarian: bool = False,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}, but must be above 0.")
        require_at_least_one(num_iterations=num_iterations)
        self.source_encoder = source_encoder
        size = source_encoder.hidden_size
        self.query = nn.Linear(size, size, bias=False)
        self.key = nn.Linear(size, size, bias=False)
        self.temperature, self.num_iterations, self.hungarian = temperature, num_iterations, hungarian

    def extra_repr(self) -> str:
        """What `repr` shows besides the layers."""
        return f"temperature={self.temperature}, num_iterations={self.num_iterations}, hungarian={self.hungarian}"

    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """Mix the states by the relaxed matching; at test time, with ``hungarian``, put them into the best order."""
        scores = self.scores(source, lengths)
        if self.hungarian and not self.training:
            order = best_matching(scores, lengths)
            return Reordering(take_order(states, order), matrix=matrix_of_order(order, states), order=order)
        if self.training:
            scores = scores + gumbel_noise(scores)
        matrix = sinkhorn_matrix(scores / self.temperature, lengths, self.num_iterations, validate_args=False)
        return Reordering(matrix @ states, matrix=matrix)

    def scores(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch position token"]:
        """The scores of all pairs of positions and tokens, before noise and temperature."""
        states = self.source_encoder(source, lengths)
        return cast(Tensor, self.query(states) @ self.key(states).mT)
