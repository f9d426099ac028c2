"""Distributions over separable permutations whose trees carry latent labels."""

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from permalign import kernels
from permalign.checks import require_floats, require_lengths, require_range, require_scores, shape_of
from permalign.kernels.layout import (
    mask_padding,
    masked_tokens,
    root_scores,
    split_count,
    split_index,
    valid_splits,
)
from permalign.kernels.portable import labelled as choices
from permalign.kernels.sampling import gumbel_noise
from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.structures.derivations import RULES, Derivation, Tree
from permalign.structures.distribution import OrderDistribution
from permalign.structures.forests import LabelledForest

if TYPE_CHECKING:
    from permalign.structures.labelled_synchronous import LabelledSynchronousPermutation


class LabelledPermutation(OrderDistribution):
    r"""A distribution over labelled derivations of separable permutations, and through them over permutations.

    A labelled derivation is a binary tree over the words of a sentence. Every node is straight or inverted, and every
    node and leaf has one of K labels. Labels are latent (nobody observes them): categories by which a grammar remembers
    what it has built. The probability of a derivation is proportional to the exponential of

        root(label of the root) + sum over nodes of rule(orientation, label, left label, right label)
        + sum over words of token(word, label) + sum over nodes of split(i, j, k, orientation)

    Rules are global: their scores are the same wherever they are used. Only the scores of tokens (and of splits, if
    given) depend on the sentence. With one label, and zero scores of rules and tokens, it is a `SeparablePermutation`.
    The sum over all derivations,

        beta(i,i+1,a) = token(i,a)
        beta(i,k,a) = logsumexp_{j,o,b,c} rule(o,a,b,c) + split(i,j,k,o) + beta(i,j,b) + beta(j,k,c)
        log Z = logsumexp_a root(a) + beta(0,n,a)

    takes O(n^3 K^2 + n^2 K^3): split points are summed for every pair of labels, then contracted with the rules. The
    probability of an order and the best derivation take as long. Matrices and relaxed samples take O(n^4 K^2 + n^3
    K^3), as does `log_likelihood`, the sum over derivations of a tagging, with p the position at which the output of a
    span begins:

        C(i,i+1,p,a) = emission(i,p) + token(i,a)
        C(i,k,p,a) = logsumexp_{j,b,c} { rule(0,a,b,c) + split(i,j,k,0) + C(i,j,p,b) + C(j,k,p+j-i,c),
                                         rule(1,a,b,c) + split(i,j,k,1) + C(i,j,p+k-j,b) + C(j,k,p,c) }

    A relaxed sample chooses a node in two steps, each with Gumbel noise: orientation and children's labels given its
    own label, then the split point given those. The root's label is a third choice.

    Args:
        rule_scores: ``(2, K, K, K)`` indexed [orientation, label, left label, right label]; orientation 0 is straight,
            1 inverted.
        token_scores: ``(batch, n, K)``, the score of every label of every word.
        split_scores: ``(batch, T, 2)``, packed as for `SeparablePermutation`; None means zeros.
        lengths: ``(batch,)``, the number of words of every sentence; None means ``n`` for all.
        root_scores: ``(K,)``, the score of every label of the root; None means zeros.
        validate_args: whether to check the values of the arguments; None means torch's default.

    Example: words of label 1 come after words of label 0, whatever their order in the sentence.

        >>> rules = torch.full((2, 3, 3, 3), -20.0)
        >>> rules[0, 2, 0, 1] = rules[1, 2, 1, 0] = 0.0
        >>> tokens = torch.tensor([[[-9.0, 0.0, -9.0], [0.0, -9.0, -9.0]]])  # the first word has label 1
        >>> distribution = LabelledPermutation(rules, tokens)
        >>> print(distribution.best_derivation()[0].draw(["saw", "she"]))
        I ⇄ [2]
        ├─ saw [1]
        └─ she [0]

    Two words, two labels, and no preference: 2 rules and 3 labels of two kinds make 16 derivations.

        >>> uniform = LabelledPermutation(torch.zeros(2, 2, 2, 2), torch.zeros(1, 2, 2))
        >>> (drawn,) = uniform.sample_derivations(100, torch.Generator().manual_seed(0))
        >>> {round(derivation.log_prob, 4) for derivation in drawn}, len({derivation.tree for derivation in drawn})
        ({-2.7726}, 16)
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "rule_scores": constraints.independent(constraints.real, 4),
        "token_scores": constraints.independent(constraints.real, 2),
        "split_scores": constraints.independent(constraints.real, 2),
        "root_scores": constraints.independent(constraints.real, 1),
    }
    split_scores_name = "split_scores"
    token_scores_names = ("token_scores",)

    def __init__(
        self,
        rule_scores: Float[Tensor, "2 K K K"],
        token_scores: Float[Tensor, "batch n K"],
        split_scores: Float[Tensor, "batch splits 2"] | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
        root_scores: Float[Tensor, " K"] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        require_floats({"rule_scores": rule_scores, "token_scores": token_scores})
        if token_scores.dim() != 3 or token_scores.shape[1] < 1 or token_scores.shape[2] < 1:
            raise ValueError(
                f"token_scores has shape {shape_of(token_scores)}, but must be (batch, n, K): a score for every label "
                "of every word."
            )
        batch, length, labels = token_scores.shape
        self.rule_scores, self.token_scores = rule_scores, token_scores
        self.lengths = require_lengths("lengths", lengths, "token_scores", token_scores, length)
        self.split_scores = (
            token_scores.new_zeros(batch, split_count(length), 2) if split_scores is None else split_scores
        )
        self.root_scores = token_scores.new_zeros(labels) if root_scores is None else root_scores
        super().__init__(batch, length, validate_args)
        self._require_shapes()
        if self._validate_args:
            self._require_values()

    def __repr__(self) -> str:
        sizes = f"sentences: {self.batch_shape[0]}, length: {self.length}, labels: {self.num_labels}"
        return f"LabelledPermutation({sizes})"

    @property
    def num_labels(self) -> int:
        """The number of labels, K."""
        return self.token_scores.shape[2]

    # --- Sums over derivations --------------------------------------------------------------------------------

    def log_partition(self) -> Float[Tensor, " batch"]:
        """The log of the summed weight of all labelled derivations. O(n^3 K^2 + n^2 K^3)."""
        return kernels.labelled_log_partition(*self._parts(), self.lengths)

    def rule_marginals(self) -> Float[Tensor, "batch splits 2"]:
        """The probability that a derivation contains each split with each orientation; zero at padding."""
        return self._marginals()[1]

    def span_marginals(self) -> Float[Tensor, "batch spans K"]:
        """The probability that a derivation has each span as a constituent with each label; zero at padding.

        Spans are packed by width, then start, so that the first n are the words.
        """
        return self._marginals()[0]

    def rule_counts(self) -> Float[Tensor, "batch 2 K K K"]:
        """How many nodes of a derivation use each rule, on average; a sentence of n words has n - 1 nodes."""
        return self._marginals()[2]

    def expected_matrix(self) -> Float[Tensor, "batch position token"]:
        """E[M][position, token], the marginal probability that the token stands there; identity at padding.

        ``mu(i,k,p,a)``, the probability that (i,k) is a constituent with label a whose output starts at p, flows from
        the root down. O(n^4 K^2 + n^3 K^3).
        """
        return choices.expected_matrix(*self._choices(), self.lengths)

    # --- Single derivations -----------------------------------------------------------------------------------

    def derivation_of_order(self, order: Int[Tensor, "batch n"]) -> list[Derivation | None]:
        """The most probable derivation of one order for each sentence, searched among the `search_budget` best.

        It is None for a sentence where none of these has the order.
        """
        orders = [row[:length] for row, length in zip(order.tolist(), self.lengths.tolist(), strict=True)]
        return [
            next((derivation for derivation in ranked if list(derivation.order) == tokens), None)
            for ranked, tokens in zip(self.top_derivations(self.search_budget), orders, strict=True)
        ]

    @property
    def search_budget(self) -> int:
        """How many derivations to search in interactive use: fewer in long sentences."""
        return min(super().search_budget, max(20, 1000 // self.length))

    def with_segments(
        self,
        segment_log_probs: Float[Tensor, "batch leaves starts sizes"],
        target_lengths: Int[Tensor, " batch"],
        phrase_scores: Float[Tensor, "batch phrases"] | None = None,
    ) -> "LabelledSynchronousPermutation":
        """See `OrderDistribution.with_segments`; leaves are single tokens."""
        from permalign.structures.labelled_synchronous import (
            LabelledSynchronousPermutation,
        )  # built on this module

        if phrase_scores is not None:
            raise ValueError(
                "phrases have no labels. Use a SeparablePermutation, or a head with max_phrase_length=1."
            )
        return LabelledSynchronousPermutation(
            self.rule_scores.to(segment_log_probs),
            self.token_scores.to(segment_log_probs),
            segment_log_probs,
            self.split_scores.to(segment_log_probs),
            self.lengths,
            target_lengths,
            self.root_scores.to(segment_log_probs),
            validate_args=False,
        )

    # --- What OrderDistribution needs -------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        return {
            "rule_scores": self.rule_scores,
            "token_scores": self.token_scores,
            "split_scores": self.split_scores,
            "lengths": self.lengths,
            "root_scores": self.root_scores,
        }

    def _tagging_inside(self, emissions: Tensor) -> Tensor:
        return kernels.labelled_tagging_inside(*self._parts(), emissions, self.lengths)

    def _expected_weight(self) -> Tensor:
        spans, splits, rules = self._marginals()
        tokens = masked_tokens(self.token_scores, self.lengths)
        expected = (splits * mask_padding(self.split_scores, self.lengths)).sum((1, 2))
        expected = expected + (rules * self.rule_scores).flatten(1).sum(1)
        expected = expected + (spans[:, : self.length] * tokens).sum((1, 2))
        return expected + (self._choices()[0] * self.root_scores).sum(1)

    def _relaxed_matrix(self, temperature: float, hard: bool, generator: torch.Generator | None) -> Tensor:
        chart = self._chart()
        top = root_scores(chart, self.root_scores, self.lengths)
        top = ((top + gumbel_noise(top, generator)) / temperature).softmax(-1)
        options = choices.options(chart, self.rule_scores, self.split_scores, self.lengths)
        options = choices.normalised(choices.gumbel_options(options, temperature, generator))
        if hard:
            top = choices.one_hot(top, 1) + (top - top.detach())
            options = choices.hardened(options)
        return choices.expected_matrix(top, options, self.lengths)

    def _chart(self, maximise: bool = False) -> Tensor:
        """Weights of spans by label."""
        return kernels.labelled_chart(*self._parts(), self.lengths, maximise)

    @property
    def _draws(self) -> int:
        return self.length

    def _walk(self, chart: Tensor, uniforms: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        option = partial(choices.choose_option, self.rule_scores.detach())
        return choices.walk(chart, option, self.root_scores, self.split_scores, self.lengths, uniforms)

    def _tree_weight(self, row: int, tree: Tree) -> Tensor:
        device = self.token_scores.device
        nodes = torch.tensor(tree.to_nodes(), dtype=torch.int64, device=device)
        start, middle, end, orientation = nodes.view(-1, 4).unbind(-1)
        leaves = sorted((node.start, node.label or 0) for node in tree.nodes() if node.rule is None)
        tokens, labels = torch.tensor(leaves, device=device).unbind(-1)
        weight = self.split_scores[row, split_index(self.length, start, middle, end), orientation].sum()
        weight = weight + self.token_scores[row, tokens, labels].sum()
        weight = weight + self.root_scores[tree.label or 0]
        for node in tree.nodes():
            if node.rule is not None:
                left, right = node.children
                rule = self.rule_scores[RULES.index(node.rule), node.label, left.label, right.label]
                weight = weight + rule
        return weight

    def _forest(self) -> LabelledForest:
        rules, root, tokens, splits = self._parts()
        return LabelledForest(rules, root, tokens[0], splits[0], self._chart(maximise=True))

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rules, root, tokens and splits, in the order in which kernels take them."""
        return self.rule_scores, self.root_scores, self.token_scores, self.split_scores

    def _choices(self) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Probabilities of the root's label, and of the options of every node."""
        chart = self._chart()
        top = root_scores(chart, self.root_scores, self.lengths).softmax(-1)
        options = choices.options(chart, self.rule_scores, self.split_scores, self.lengths)
        return top, choices.normalised(options)

    def _marginals(self) -> tuple[Tensor, Tensor, Tensor]:
        """Marginals of spans by label, marginals of splits, and counts of rules."""
        return choices.marginals(*self._choices(), self.lengths)

    def _require_shapes(self) -> None:
        """Require that all scores have the sizes of the token scores."""
        scores = {
            "rule_scores": self.rule_scores,
            "token_scores": self.token_scores,
            "split_scores": self.split_scores,
            "root_scores": self.root_scores,
        }
        require_floats(scores)
        batch, length, labels = self.token_scores.shape
        expected = {
            "rule_scores": ((2, labels, labels, labels), "[orientation, label, left label, right label]"),
            "split_scores": (
                (batch, split_count(length), 2),
                "(batch, T, 2) with T = (n^3 - n) / 6 for n words, as for SeparablePermutation",
            ),
            "root_scores": ((labels,), "one score for every label"),
        }
        for name, (shape, meaning) in expected.items():
            if tuple(scores[name].shape) != shape:
                raise ValueError(
                    f"{name} has shape {shape_of(scores[name])}, but token_scores {shape_of(self.token_scores)} holds "
                    f"{labels} labels of {length} words, so it must be {shape}: {meaning}."
                )

    def _require_values(self) -> None:
        """Require lengths there is room for, and finite scores outside the padding."""
        require_range("lengths", self.lengths, "token_scores", self.token_scores, self.length)
        present = length_mask(self.lengths, self.length)
        require_scores("token_scores", self.token_scores, present)
        require_scores("split_scores", self.split_scores, valid_splits(self.length, self.lengths))
        for name, scores in (("rule_scores", self.rule_scores), ("root_scores", self.root_scores)):
            require_scores(name, scores, torch.ones_like(scores, dtype=torch.bool))
