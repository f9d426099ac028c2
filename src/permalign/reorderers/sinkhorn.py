"""A reorderer without trees: relaxed one-to-one matchings of words and positions (Mena et al., 2018)."""

from typing import cast

import torch
from torch import Tensor, nn

from permalign.reorderers.base import Reorderer, Reordering
from permalign.reorderers.discrete import matrix_of_order, take_order
from permalign.reorderers.reading import SourceReader
from permalign.shapes import Float, Int
from permalign.structures.sinkhorn import best_matching, sinkhorn_matrix


class SinkhornReorderer(Reorderer):
    """Sinkhorn attention: each position asks, each token answers, and normalisation keeps them one to one.

        score(position, token) = query(state of the position) . key(state of the token)
        M = sinkhorn((score + Gumbel noise) / temperature)

    A position's state is that of the word which stands there at first. There is noise in training alone; a lower
    temperature brings the matrix nearer to a single permutation. Any permutation can be learned, separable or not.
    O(n^2 (width + iterations)).

    Args:
        words: the size of the vocabulary, with the specials.
        embedding: the width of the words' vectors.
        embeddings: vectors to share with a head (see `SourceReader`); None makes new ones.
        encoder: ``bilstm``, ``transformer``, ``sums``, or ``none`` where the vectors have their context already.
        width: of the states, queries and keys.
        layers: of the encoder.
        attention_heads: of a Transformer.
        sums: of an encoder that sums.
        dropout: of the encoder.
        temperature: above 0.
        iterations: how many turns of normalisation.
        hungarian: at test time take the best matching, a true permutation (needs SciPy), not the relaxed one.
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
        dropout: float = 0.0,
        temperature: float = 1.0,
        iterations: int = 32,
        hungarian: bool = False,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}, but must be above 0.")
        if iterations < 1:
            raise ValueError(f"iterations is {iterations}, but must be at least 1. The paper has 32.")
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
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.temperature, self.iterations, self.hungarian = temperature, iterations, hungarian

    def extra_repr(self) -> str:
        """What `repr` says beside the layers."""
        return f"temperature={self.temperature}, iterations={self.iterations}, hungarian={self.hungarian}"

    def forward(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"],
        states: Float[Tensor, "batch n width"],
    ) -> Reordering:
        """The states mixed by the relaxed matching; with ``hungarian`` at test time in the best matching's order."""
        scores = self.scores(source, lengths)
        if self.hungarian and not self.training:
            order = best_matching(scores, lengths)
            return Reordering(take_order(states, order), matrix=matrix_of_order(order, states), order=order)
        if self.training:
            scores = scores + _gumbel(scores)
        matrix = sinkhorn_matrix(scores / self.temperature, lengths, self.iterations)
        return Reordering(matrix @ states, matrix=matrix)

    def scores(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch position token"]:
        """How well each token suits each position, before noise and temperature."""
        states = self.reader(source, lengths)
        return cast(Tensor, self.query(states) @ self.key(states).mT)


def _gumbel(scores: Tensor) -> Tensor:
    tiny = torch.finfo(scores.dtype).tiny
    return -(-torch.rand_like(scores).clamp(min=tiny).log()).clamp(min=tiny).log()
