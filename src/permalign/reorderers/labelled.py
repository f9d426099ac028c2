"""A reorderer whose trees carry latent labels: it learns a grammar that people can read."""

from collections.abc import Iterable, Sequence
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one
from permalign.reorderers.inversion_prior import InversionPrior
from permalign.reorderers.objectives import Objective
from permalign.reorderers.source_encoder import SourceEncoder
from permalign.reorderers.split_scorer import SplitScorer
from permalign.reorderers.tree import Decoding, TreeReorderer, require_choice
from permalign.shapes import Int
from permalign.structures import (
    FactorisedLabelledPermutation,
    LabelledPermutation,
    LearnedGrammar,
    read_grammar,
)

Features = Literal["token", "encoding"]


class LabelGrammar(nn.Module):
    """The learned scores of a grammar over K latent labels, the same for all sentences.

    Args:
        num_labels: K, the number of labels.
        init_std: the standard deviation of the initial scores; above 0, for labels that start equal stay equal.
        factorised: whether the labels of a node's children are independent given its label and orientation.

    Attributes:
        rules: ``(orientation, K, K, K)``, the scores of rules by orientation, parent, left child and right child; if
            factorised, ``(orientation, side, K, K)``, the scores of a left or right child's label by orientation and
            parent.
        root: ``(K,)``, the scores of the root's label.
    """

    def __init__(self, num_labels: int, init_std: float, factorised: bool = False) -> None:
        super().__init__()
        require_at_least_one(num_labels=num_labels)
        if not init_std > 0:
            raise ValueError(
                f"init_std is {init_std}, but must be above 0: labels that start equal stay equal."
            )
        self.num_labels, self.init_std, self.factorised = num_labels, init_std, factorised
        shape = (2, 2 if factorised else num_labels, num_labels, num_labels)
        self.rules = nn.Parameter(init_std * torch.randn(shape))
        self.root = nn.Parameter(init_std * torch.randn(num_labels))

    def distribution(
        self, token_scores: Tensor, split_scores: Tensor | None, lengths: Tensor
    ) -> LabelledPermutation:
        """The distribution over derivations of sentences with these scores of tokens and splits."""
        family = FactorisedLabelledPermutation if self.factorised else LabelledPermutation
        return family(self.rules, token_scores, split_scores, lengths, self.root, validate_args=False)


class LabelledReorderer(TreeReorderer):
    """Reorders by a global grammar over latent labels; a word's label scores depend on the word or its encoding.

    The rules of a separable reorderer depend on the states of an encoder, and encoders do not extrapolate to deeper
    sentences. Here a rule's score depends only on the labels of a node and of its two children, so that what is learned
    at one depth holds at any depth. With ``features="token"`` and no split scores there is no encoder at all.

    Objectives and decodings are those of `TreeReorderer`; inside sums are O(n^3 K^2 + n^2 K^3), matrices and exact
    tagging likelihoods O(n^4 K^2 + n^3 K^3). With a factorised grammar, inside sums are O(n^3 K + n^2 K^2), and exact
    tagging likelihoods O(n^4 K + n^3 K^2).

    Args:
        grammar: the scores of rules and of the root's label.
        vocab_size: the size of the source vocabulary, special tokens included.
        source_encoder: reads the source; None if neither label scores nor split scores need it.
        features: what a word's label scores are computed from: the ``token`` itself, or its ``encoding`` in context.
        embeddings: embeddings shared with the head, from which a linear layer computes the label scores of a
            ``token``; None for a table of scores by token id.
        scorer_hidden_size: the number of hidden units of a `SplitScorer` over the encoding, whose scores are added to
            those of rules; None for no scores of splits.
        dropout: dropout on the hidden units of the split scorer.
        objective, decoding, temperature, num_samples, inversion_prior: see `TreeReorderer`.

    >>> grammar = LabelGrammar(num_labels=3, init_std=0.5)
    >>> reorderer = LabelledReorderer(grammar, vocab_size=9, objective="exact", decoding="viterbi").eval()
    >>> source, lengths = torch.tensor([[4, 5, 6, 7], [8, 4, 0, 0]]), torch.tensor([4, 2])
    >>> reordering = reorderer(source, lengths, torch.randn(2, 4, 3))
    >>> reordering.states.shape, reordering.order[1, 2:]  # padding keeps its position
    (torch.Size([2, 4, 3]), tensor([2, 3]))
    """

    def __init__(
        self,
        grammar: LabelGrammar,
        *,
        vocab_size: int,
        objective: Objective,
        decoding: Decoding,
        source_encoder: SourceEncoder | None = None,
        features: Features = "token",
        embeddings: nn.Module | None = None,
        scorer_hidden_size: int | None = None,
        dropout: float = 0.0,
        temperature: float = 1.0,
        num_samples: int = 4,
        inversion_prior: InversionPrior | None = None,
    ) -> None:
        super().__init__(
            objective=objective,
            decoding=decoding,
            temperature=temperature,
            num_samples=num_samples,
            inversion_prior=inversion_prior,
        )
        require_choice("features", features, get_args(Features))
        self.features, self.grammar, self.num_labels = features, grammar, grammar.num_labels
        self.source_encoder = source_encoder
        if source_encoder is None and (features == "encoding" or scorer_hidden_size is not None):
            raise ValueError(
                "source_encoder is None, but the features 'encoding' and scores of splits are computed from its "
                "states. Pass a SourceEncoder."
            )
        encoding_size = 0 if source_encoder is None else source_encoder.hidden_size
        self.scorer: SplitScorer | None = None
        if scorer_hidden_size is not None:
            self.scorer = SplitScorer(encoding_size, scorer_hidden_size, dropout)
        self.token_labels: nn.Module
        if features == "encoding":
            self.token_labels = nn.Linear(encoding_size, grammar.num_labels)
        elif embeddings is None:
            table = nn.Embedding(vocab_size, grammar.num_labels)
            nn.init.normal_(table.weight, std=grammar.init_std)
            self.token_labels = table
        else:
            project = nn.Linear(cast(int, embeddings.embedding_dim), grammar.num_labels)
            self.token_labels = nn.Sequential(embeddings, project)

    def extra_repr(self) -> str:
        """What `repr` shows besides the layers."""
        return (
            f"num_labels={self.grammar.num_labels}, objective={self.objective!r}, decoding={self.decoding!r}"
        )

    def distribution(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]
    ) -> LabelledPermutation:
        """The distribution over the labelled derivations of every sentence."""
        states = (
            None if self.source_encoder is None else self.source_encoder(source, lengths, add_boundaries=True)
        )
        token_scores: Tensor
        if self.features == "token":
            token_scores = self.token_labels(source)
        else:
            assert states is not None
            token_scores = self.token_labels(states[:, 1:-1])
        split_scores = None if self.scorer is None else self.scorer(states, lengths)
        return self.grammar.distribution(token_scores, split_scores, lengths)

    def learned_grammar(
        self, batches: Iterable[tuple[Tensor, Tensor, Sequence[Sequence[str]]]]
    ) -> LearnedGrammar:
        """Show what was learned, by its use on given sentences: rules and labels, most used first; see `read_grammar`.

        Args:
            batches: token ids, lengths, and the words themselves.
        """
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                return read_grammar(
                    (self.distribution(source, lengths), words) for source, lengths, words in batches
                )
        finally:
            self.train(training)
