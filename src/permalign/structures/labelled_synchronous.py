"""Reordering and alignment in one sum, by trees that carry latent labels."""

import torch
from torch import Tensor

from permalign import kernels
from permalign.checks import shape_of
from permalign.kernels import Walks
from permalign.kernels.layout import split_count, valid_splits
from permalign.shapes import Float, Int
from permalign.structures.derivations import RULES, Tree
from permalign.structures.labelled import LabelledPermutation
from permalign.structures.synchronous import SynchronousPermutation


class LabelledSynchronousPermutation(SynchronousPermutation):
    r"""`SynchronousPermutation` whose trees are those of `permalign.LabelledPermutation`.

    A leaf weighs ``token(i,a) + segment[i,p,q-p]``, a node ``rule(o,a,b,c) + split(i,j,k,o)``, and the root ``root(a)``
    in addition; all labels are summed over. O(n^3 m^3 K^2 + n^2 m^2 K^3). With one label, and zero scores of rules and
    tokens, it is a `SynchronousPermutation`.

    Args:
        rule_scores: ``(2, K, K, K)`` indexed [orientation, label, left label, right label].
        token_scores: ``(batch, n, K)``, the score of every label of every token.
        segment_log_probs: ``(batch, n, m + 1, L + 1)``, as in `SynchronousPermutation`.
        split_scores: ``(batch, T, 2)``, packed as for `permalign.SeparablePermutation`; None means zeros.
        source_lengths: ``(batch,)``, the number of tokens; None means all.
        target_lengths: ``(batch,)``, the number of words, 0 allowed; None means all.
        root_scores: ``(K,)``, the score of every label of the root; None means zeros.
        validate_args: whether to check the values of the arguments; None means torch's default.

    >>> rules, tokens = torch.zeros(2, 3, 3, 3), torch.zeros(1, 2, 3)
    >>> segments = torch.full((1, 2, 2, 2), 0.5).log()  # a word with probability one half
    >>> LabelledSynchronousPermutation(rules, tokens, segments).log_likelihood().exp()
    tensor([0.5000])
    """

    def __init__(
        self,
        rule_scores: Float[Tensor, "2 K K K"],
        token_scores: Float[Tensor, "batch n K"],
        segment_log_probs: Float[Tensor, "batch n starts sizes"],
        split_scores: Float[Tensor, "batch splits 2"] | None = None,
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
        root_scores: Float[Tensor, " K"] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.grammar = LabelledPermutation(
            rule_scores, token_scores, split_scores, source_lengths, root_scores, validate_args
        )
        if tuple(segment_log_probs.shape[:2]) != tuple(token_scores.shape[:2]):
            raise ValueError(
                f"segment_log_probs has shape {shape_of(segment_log_probs)}, but token_scores "
                f"{shape_of(token_scores)}: both begin with (batch, n)."
            )
        splits = self.grammar.split_scores
        super().__init__(
            splits, segment_log_probs, source_lengths, target_lengths, validate_args=validate_args
        )

    @property
    def permutation(self) -> LabelledPermutation:
        """The distribution over orders before any output is seen."""
        return self.grammar

    @property
    def prior(self) -> "LabelledSynchronousPermutation":
        """Labelled trees before any output is seen: the output is empty, and tokens write nothing for certain."""
        grammar = self.grammar
        return LabelledSynchronousPermutation(
            grammar.rule_scores,
            grammar.token_scores,
            self.split_scores.new_zeros(*self.segment_log_probs.shape[:2], 1, 1),
            self.split_scores,
            self.source_lengths,
            torch.zeros_like(self.source_lengths),
            grammar.root_scores,
            validate_args=False,
        )

    def _require_prunable(self, threshold: float, tolerance: float) -> None:
        raise ValueError("sums over labelled trees cannot be pruned. Use log_likelihood().")

    def _parts(self, splits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rules, root, tokens and splits, in the precision of the splits."""
        grammar = self.grammar
        rules, root, tokens = (
            scores.to(splits, copy=scores.is_inference() and not splits.is_inference())
            for scores in (grammar.rule_scores, grammar.root_scores, grammar.token_scores)
        )
        return rules, root, tokens, splits

    def _inputs(self) -> tuple[Tensor, ...]:
        grammar = self.grammar
        return (*super()._inputs(), grammar.rule_scores, grammar.root_scores, grammar.token_scores)

    def _total(self, split_scores: Tensor, segment_log_probs: Tensor) -> Tensor:
        return kernels.labelled_synchronous_inside(
            *self._parts(split_scores),
            self._finite(segment_log_probs),
            self.source_lengths,
            self.target_lengths,
        )

    def _walk(self, uniforms: Tensor | None) -> Walks:
        """See `SynchronousPermutation._walk`; one sentence at a time, because a chart by label is large."""
        batch, device = len(self.source_lengths), self.split_scores.device
        samples = 1 if uniforms is None else uniforms.shape[0]
        orders = torch.arange(self.length, device=device).repeat(samples, batch, 1)
        sizes, widths, leaves = (
            torch.zeros_like(orders),
            torch.zeros_like(orders),
            torch.full_like(orders, -1),
        )
        nodes = torch.full((samples, batch, self.length - 1, 5), -1, device=device)
        rules, root, tokens, splits = self._parts(self.split_scores)
        segments, valid = self._finite(self.segment_log_probs), valid_splits(self.length, self.source_lengths)
        pairs = zip(self.source_lengths.tolist(), self.target_lengths.tolist(), strict=True)
        for row, (length, target_length) in enumerate(pairs):
            only = slice(row, row + 1)  # a batch of one
            walks = kernels.labelled_synchronous_walk(
                rules,
                root,
                tokens[only, :length],
                splits[only, valid[row]].view(1, split_count(length), 2),
                segments[only, :length, : target_length + 1],
                self.source_lengths[only],
                self.target_lengths[only],
                None if uniforms is None else uniforms[:, only, :length],
            )
            nodes[:, row, : length - 1] = walks.nodes[:, 0]
            copies = (
                (leaves, walks.leaves),
                (orders, walks.orders),
                (sizes, walks.sizes),
                (widths, walks.widths),
            )
            for of_batch, of_sentence in copies:
                of_batch[:, row, :length] = of_sentence[:, 0]
        return Walks(nodes, leaves, orders, sizes, widths)

    def _tree(self, nodes: Tensor, labels: Tensor, first: Tensor, widths: Tensor) -> Tree:
        return Tree.from_nodes(nodes.clamp(min=0).tolist(), len(labels), labels.clamp(min=0).tolist())

    def _grammar_weight(self, row: int, tree: Tree) -> float:
        rules, root, tokens, _ = (scores.detach() for scores in self._parts(self.split_scores))
        weight = float(root[tree.label or 0])
        for node in tree.nodes():
            if node.rule is None:
                weight += float(tokens[row, node.start, node.label])
            else:
                left, right = node.children
                weight += float(rules[RULES.index(node.rule), node.label, left.label, right.label])
        return weight
