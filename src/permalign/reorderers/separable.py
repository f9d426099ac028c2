"""The reorderer of the paper: a distribution over separable permutations, scored by what a sentence's splits show."""

from typing import Literal, get_args

from torch import Tensor, nn

from permalign.reorderers.base import Distribution
from permalign.reorderers.reading import SourceReader
from permalign.reorderers.split_scorer import SplitScorer
from permalign.reorderers.trees import Decoding, Objective, TreeReorderer, require_choice
from permalign.shapes import Int
from permalign.structures import SeparablePermutation

Straight = Literal["scored", "free"]


class SeparableReorderer(TreeReorderer):
    """Scores every split of a sentence, and reorders by the distribution over separable permutations they make.

    Objectives in training and decodings in evaluation are those of `TreeReorderer`.
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
        straight: ``scored``, or ``free``: every split's scores are taken relative to its straight rule, so that only
            inversions weigh. In sentences longer than those it was trained on, scores of straight rules (most of a
            tree) then cannot outweigh the inversions.
        normal_form: give every permutation exactly one derivation.
        objective, decoding, temperature, samples, inversion_rate, inversion_weight: see `TreeReorderer`.

    >>> import torch
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
        temperature: float = 1.0,
        samples: int = 4,
        straight: Straight = "scored",
        normal_form: bool = False,
        inversion_rate: float | None = None,
        inversion_weight: float = 1.0,
    ) -> None:
        super().__init__(
            objective=objective,
            decoding=decoding,
            temperature=temperature,
            samples=samples,
            inversion_rate=inversion_rate,
            inversion_weight=inversion_weight,
        )
        require_choice("straight", straight, get_args(Straight))
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
        self.straight, self.normal_form = straight, normal_form

    def extra_repr(self) -> str:
        """What `repr` says beside the layers."""
        return f"objective={self.objective!r}, decoding={self.decoding!r}, normal_form={self.normal_form}"

    def distribution(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]
    ) -> SeparablePermutation:
        """Over the orders of every sentence."""
        scores = self.scorer(self.reader(source, lengths, fences=True), lengths)
        if self.straight == "free":
            scores = scores - scores[..., :1]
        return SeparablePermutation(scores, lengths, self.normal_form, validate_args=False)

    def copied(self, distribution: Distribution, copies: int) -> SeparablePermutation:
        """The distributions of a batch, all of them ``copies`` times in a row."""
        assert isinstance(distribution, SeparablePermutation)
        scores, lengths = distribution.scores.repeat(copies, 1, 1), distribution.lengths.repeat(copies)
        return SeparablePermutation(scores, lengths, distribution.normal_form, validate_args=False)
