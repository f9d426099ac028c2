"""Distributions over labelled trees whose rules are products, for many labels."""

from functools import partial
from typing import Any, ClassVar

from torch import Tensor
from torch.distributions import constraints

from permalign import kernels
from permalign.checks import require_floats, shape_of
from permalign.kernels.portable import labelled as choices
from permalign.kernels.portable.factorised import best_option, expanded
from permalign.shapes import Float, Int
from permalign.structures.labelled import LabelledPermutation


class FactorisedLabelledPermutation(LabelledPermutation):
    r"""A `LabelledPermutation` in which, given a node's label and orientation, its children's labels are independent.

    The score of a rule is a sum of two,

        rule(orientation, a, b, c) = child(orientation, left, a, b) + child(orientation, right, a, c)

    so that a grammar of K labels has 4 K^2 of them in place of 2 K^3. What a constituent contributes to a node above it
    does not depend on its sibling:

        projected(i,k,o,side,a) = logsumexp_b child(o,side,a,b) + beta(i,k,b)
        beta(i,k,a) = logsumexp_{j,o} split(i,j,k,o) + projected(i,j,o,left,a) + projected(j,k,o,right,a)

    This takes O(n^3 K + n^2 K^2), and the likelihood of a tagging n times as long. Both and the chart of the best
    derivations are computed in this way; everything else as in `LabelledPermutation`, from ``rule_scores``, which hold
    the sums of all pairs.

    Args:
        child_scores: ``(2, 2, K, K)`` indexed [orientation, side, label, child's label]; orientation 0 is straight, 1
            inverted; side 0 is the left child, 1 the right one.
        token_scores, split_scores, lengths, root_scores, validate_args: as of `LabelledPermutation`.

    >>> import torch
    >>> children, tokens = torch.randn(2, 2, 5, 5), torch.randn(1, 4, 5)
    >>> factorised = FactorisedLabelledPermutation(children, tokens)
    >>> full = LabelledPermutation(children[:, 0, :, :, None] + children[:, 1, :, None, :], tokens)
    >>> torch.allclose(factorised.log_partition(), full.log_partition(), rtol=1e-4)
    True
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "child_scores": constraints.independent(constraints.real, 4),
        **{name: rule for name, rule in LabelledPermutation.arg_constraints.items() if name != "rule_scores"},
    }

    def __init__(
        self,
        child_scores: Float[Tensor, "2 2 K K"],
        token_scores: Float[Tensor, "batch n K"],
        split_scores: Float[Tensor, "batch splits 2"] | None = None,
        lengths: Int[Tensor, " batch"] | None = None,
        root_scores: Float[Tensor, " K"] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        require_floats({"child_scores": child_scores, "token_scores": token_scores})
        labels = token_scores.shape[-1] if token_scores.dim() == 3 else 0
        if tuple(child_scores.shape) != (2, 2, labels, labels):
            raise ValueError(
                f"child_scores has shape {shape_of(child_scores)}, but token_scores {shape_of(token_scores)} must be "
                "(batch, n, K) and child_scores (2, 2, K, K): [orientation, side, label, child's label]."
            )
        self.child_scores = child_scores
        super().__init__(
            expanded(child_scores), token_scores, split_scores, lengths, root_scores, validate_args
        )

    def log_partition(self) -> Float[Tensor, " batch"]:
        """The log of the summed weight of all labelled derivations. O(n^3 K + n^2 K^2)."""
        return kernels.factorised_log_partition(*self._factors(), self.lengths)

    # --- What OrderDistribution needs -------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        arguments = super()._arguments()
        del arguments["rule_scores"]
        return {"child_scores": self.child_scores, **arguments}

    def _tagging_inside(self, emissions: Tensor) -> Tensor:
        return kernels.factorised_tagging_inside(*self._factors(), emissions, self.lengths)

    def _chart(self, maximise: bool = False) -> Tensor:
        return kernels.factorised_chart(*self._factors(), self.lengths, maximise)

    def _walk(self, chart: Tensor, uniforms: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if uniforms is not None:  # one draw decides on a split point and both labels at once
            return super()._walk(chart, uniforms)

        option = partial(best_option, self.child_scores.detach())
        return choices.walk(chart, option, self.root_scores, self.split_scores, self.lengths, None)

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _factors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The factors of rules, root, tokens and splits, in the order in which kernels take them."""
        return self.child_scores, self.root_scores, self.token_scores, self.split_scores
