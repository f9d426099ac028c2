"""A reorderer whose trees carry latent labels: a grammar that is learned, and can be read."""

from collections.abc import Iterable, Sequence
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from permalign.checks import require_at_least_one
from permalign.reorderers.base import Distribution
from permalign.reorderers.reading import SourceReader
from permalign.reorderers.split_scorer import SplitScorer
from permalign.reorderers.trees import Decoding, Objective, TreeReorderer, require_choice
from permalign.shapes import Int
from permalign.structures import LabelledPermutation, LearnedGrammar, read_grammar

Features = Literal["token", "encoding"]


class LabelledReorderer(TreeReorderer):
    """A global grammar over K latent labels, whose words get their labels from what they are.

    A separable reorderer must read from its encoder all that a rule should know, and encoders do not extrapolate to
    deeper sentences. Here trees remember: a rule's weight depends on the labels of the node and of its two parts, and
    on nothing else, so that what holds at one depth holds at all. With ``features="token"`` there is no encoder at
    all: a word's labels depend on the word alone.

    Objectives and decodings are those of `TreeReorderer`; inside sums are O(n^3 K^2 + n^2 K^3), matrices and exact
    tagging likelihoods O(n^4 K^2 + n^3 K^3).

    Args:
        words: the size of the vocabulary, with the specials.
        embedding: the width of the words' vectors, where there are any.
        labels: how many, K.
        features: what a word's label weights come from: the ``token`` itself (a table; a linear map where embeddings
            are given), or its ``encoding`` in context.
        split_scores: whether to add scores of splits, from a `SplitScorer` over the encoding.
        scale: of the initial weights, drawn from N(0, scale^2). Labels are alike at zero, so it must be above it.
        embeddings: vectors to share with a head (see `SourceReader`); None makes new ones.
        encoder: ``bilstm``, ``transformer``, ``sums``, or ``none`` where the vectors have their context already.
        width: of the encoder's states, even.
        layers: of the encoder.
        attention_heads: of a Transformer.
        sums: of an encoder that sums.
        hidden: units of the split scorer; None means 4 * width.
        dropout: of the encoder and of the split scorer's hidden layer.
        objective, decoding, temperature, samples, inversion_rate, inversion_weight: see `TreeReorderer`.

    >>> reorderer = LabelledReorderer(words=9, embedding=6, labels=3).eval()
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
        labels: int = 8,
        features: Features = "token",
        split_scores: bool = False,
        scale: float = 0.5,
        embeddings: nn.Module | None = None,
        encoder: str = "bilstm",
        width: int = 256,
        layers: int = 1,
        attention_heads: int = 4,
        sums: int = 4,
        hidden: int | None = None,
        dropout: float = 0.0,
        objective: Objective = "exact",
        decoding: Decoding = "viterbi",
        temperature: float = 1.0,
        samples: int = 4,
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
        require_choice("features", features, get_args(Features))
        require_at_least_one(labels=labels, embedding=embedding)
        if not scale > 0:
            raise ValueError(f"scale is {scale}, but must be above 0: labels that begin alike stay alike.")
        self.features, self.labels, self.words = features, labels, words
        self.rules = nn.Parameter(scale * torch.randn(2, labels, labels, labels))
        self.root = nn.Parameter(scale * torch.randn(labels))
        self.reader: SourceReader | None = None
        if features == "encoding" or split_scores:
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
        self.scorer = (
            SplitScorer(width, 4 * width if hidden is None else hidden, dropout) if split_scores else None
        )
        self.token_labels = self._token_labels(words, embeddings, width, scale)

    def _token_labels(self, words: int, embeddings: nn.Module | None, width: int, scale: float) -> nn.Module:
        """What turns a word (or its encoding) into weights of its labels."""
        if self.features == "encoding":
            return nn.Linear(width, self.labels)
        if embeddings is None:
            table = nn.Embedding(words, self.labels)
            nn.init.normal_(table.weight, std=scale)
            return table
        return nn.Sequential(embeddings, nn.Linear(cast(int, embeddings.embedding_dim), self.labels))

    def extra_repr(self) -> str:
        """What `repr` says beside the layers."""
        return f"labels={self.labels}, objective={self.objective!r}, decoding={self.decoding!r}"

    def distribution(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"]
    ) -> LabelledPermutation:
        """Over the labelled derivations of every sentence."""
        states = None if self.reader is None else self.reader(source, lengths, fences=True)
        tokens: Tensor
        if self.features == "token":
            tokens = self.token_labels(source)
        else:
            assert states is not None
            tokens = self.token_labels(states[:, 1:-1])
        splits = None if self.scorer is None else self.scorer(states, lengths)
        return LabelledPermutation(self.rules, tokens, splits, lengths, self.root, validate_args=False)

    def grammar(self, batches: Iterable[tuple[Tensor, Tensor, Sequence[Sequence[str]]]]) -> LearnedGrammar:
        """What it has learned, by its use on some sentences: rules and labels, most used first; see `read_grammar`.

        Args:
            batches: word numbers, lengths, and the words themselves.
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

    def copied(self, distribution: Distribution, copies: int) -> Distribution:
        """The distributions of a batch, all of them ``copies`` times in a row."""
        assert isinstance(distribution, LabelledPermutation)
        return distribution.repeat(copies)
