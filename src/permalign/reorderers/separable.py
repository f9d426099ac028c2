"""The paper's reorderer: a distribution over separable permutations, given by the scores of a sentence's splits."""

from math import log

import torch
from torch import Tensor

from permalign.reorderers.inversion_prior import InversionPrior
from permalign.reorderers.objectives import Objective
from permalign.reorderers.source_encoder import SourceEncoder
from permalign.reorderers.split_scorer import SplitScorer
from permalign.reorderers.tree import Decoding, TreeReorderer
from permalign.shapes import Int
from permalign.structures import SeparablePermutation


class SeparableReorderer(TreeReorderer):
    """Scores every split of a sentence, and reorders by the distribution over separable permutations they define.

    Objectives in training and decodings in evaluation are those of `TreeReorderer`.
    Encoding is O(n), scoring O(n^3 scorer_hidden_size), matrices are O(n^4), derivations O(n^3).

    Args:
        source_encoder: reads the source; the size of its states is even.
        scorer_hidden_size: the number of hidden units of the split scorer; the paper has four times the size of the
            encoder's states.
        dropout: dropout on the hidden units of the split scorer.
        score_straight_rules: whether straight rules have scores of their own. If false, every split's scores are
            relative to its straight rule, so that only inversions matter: in sentences longer than those of training,
            the scores of straight rules (most of a tree) then cannot outweigh the inversions.
        normal_form: whether every permutation has exactly one derivation.
        initial_inversion_rate: how often a rule is inverted before training, about, by a bias of its score. At 0.5 the
            first orders are random. With a low rate they are close to the source order, so that a head which reads
            sampled orders can learn from the first step on.
        objective, decoding, temperature, num_samples, inversion_prior: see `TreeReorderer`.

    >>> import torch
    >>> from permalign.encoders import BiLstmEncoder
    >>> encoder = SourceEncoder(torch.nn.Embedding(9, 6), BiLstmEncoder(6, 8))
    >>> reorderer = SeparableReorderer(encoder, scorer_hidden_size=32, objective="soft", decoding="viterbi").eval()
    >>> source, lengths = torch.tensor([[4, 5, 6, 7], [8, 4, 0, 0]]), torch.tensor([4, 2])
    >>> reordering = reorderer(source, lengths, torch.randn(2, 4, 3))
    >>> reordering.states.shape, reordering.order[1, 2:]  # padding keeps its position
    (torch.Size([2, 4, 3]), tensor([2, 3]))
    """

    def __init__(
        self,
        source_encoder: SourceEncoder,
        *,
        scorer_hidden_size: int,
        objective: Objective,
        decoding: Decoding,
        dropout: float = 0.0,
        temperature: float = 1.0,
        num_samples: int = 4,
        score_straight_rules: bool = True,
        normal_form: bool = False,
        initial_inversion_rate: float = 0.5,
        inversion_prior: InversionPrior | None = None,
    ) -> None:
        super().__init__(
            objective=objective,
            decoding=decoding,
            temperature=temperature,
            num_samples=num_samples,
            inversion_prior=inversion_prior,
        )
        self.source_encoder = source_encoder
        self.scorer = SplitScorer(source_encoder.hidden_size, scorer_hidden_size, dropout)
        if not 0 < initial_inversion_rate < 1:
            raise ValueError(
                f"initial_inversion_rate is {initial_inversion_rate}, but must be greater than 0 and less than 1."
            )
        with torch.no_grad():
            self.scorer.second.bias[1] += log(initial_inversion_rate / (1 - initial_inversion_rate))
        self.score_straight_rules, self.normal_form = score_straight_rules, normal_form

    def extra_repr(self) -> str:
        """What `repr` shows besides the layers."""
        return f"objective={self.objective!r}, decoding={self.decoding!r}, normal_form={self.normal_form}"

    def distribution(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]
    ) -> SeparablePermutation:
        """The distribution over the orders of every sentence."""
        scores = self.scorer(self.source_encoder(source, lengths, add_boundaries=True), lengths)
        if not self.score_straight_rules:
            scores = scores - scores[..., :1]
        return SeparablePermutation(scores, lengths, self.normal_form, validate_args=False)
