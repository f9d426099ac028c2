"""Distributions over separable permutations: the reorderings a bracketing transduction grammar can make."""

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.kl import register_kl

from permalign import kernels
from permalign.checks import require_floats, require_lengths, require_range, require_scores, shape_of
from permalign.kernels.layout import mask_padding, split_fenceposts, split_index, valid_splits
from permalign.kernels.sampling import gumbel_noise
from permalign.shapes import Float, Int
from permalign.structures.derivations import Tree
from permalign.structures.distribution import OrderDistribution
from permalign.structures.forests import SeparableForest
from permalign.structures.splits import require_split_scores
from permalign.structures.tagging_posterior import TaggingPosterior, tagging_posterior

if TYPE_CHECKING:
    from permalign.structures.synchronous import SynchronousPermutation

BLOCK = 2**18
"""How many splits of each sentence to look at at once where results for all of them are not needed together."""


class SeparablePermutation(OrderDistribution):
    r"""A distribution over derivations of separable permutations, and through them over permutations.

    A derivation is a binary tree over the words of a sentence, each node straight (S: left part, then right part)
    or inverted (I: right part, then left part). Its probability is proportional to the exponential of the sum of its
    splits' scores; a permutation's is the sum over its derivations:

        gamma(i,j,k,R) = score(i,j,k,R) + beta(i,j) + beta(j,k)         beta(i,k) = logsumexp_{j,R} gamma(i,j,k,R)
        log Z = beta(0,n)                                                G(j,R | i,k) = exp(gamma - beta(i,k))

    Sums, marginals, derivations and samples take O(n^3). Matrices take O(n^4), as does `log_likelihood`, the sum over
    derivations of a tagging, with p the position at which the output of a span begins:

        C(i,i+1,p) = emission(i,p)
        C(i,k,p) = logsumexp_j { score_S + C(i,j,p) + C(j,k,p+j-i),  score_I + C(j,k,p) + C(i,j,p+k-j) }

    Args:
        scores: ``(batch, T, 2)`` with ``T = (n^3 - n) / 6`` splits packed by width, then start, then middle; rule 0
            is straight, 1 inverted. See `from_dense` for scores indexed ``[i, j, k, rule]``.
        lengths: ``(batch,)``, the number of words of every sentence; None means ``n`` for all.
        normal_form: whether to forbid a straight node with a straight left child and an inverted node with an inverted
            left child: then every permutation has exactly one derivation, `best_derivation` yields the most probable
            permutation, and entropy and KL are of permutations.
        validate_args: whether to check the values of the arguments; None means torch's default. Such checks depend on
            values, so a module that `torch.export` is to trace must pass False.

    Example: of the two orders of two words, one gets three times the weight of the other.

        >>> scores = torch.tensor([[[3.0, 1.0]]]).log()
        >>> distribution = SeparablePermutation(scores)
        >>> distribution.log_partition().exp()
        tensor([4.])
        >>> distribution.expected_matrix()
        tensor([[[0.7500, 0.2500],
                 [0.2500, 0.7500]]])
        >>> print(distribution.best_derivation()[0].draw(["saw", "her"]))
        S →
        ├─ saw
        └─ her

    The likelihood of a tagging that swaps them:

        >>> swapped = torch.tensor([[[-torch.inf, 0.0], [0.0, -torch.inf]]])  # token 0 can only stand second
        >>> distribution.log_likelihood(swapped).exp()
        tensor([0.2500])

    Four words: 5 of the 40 derivations keep the order, and none yields the order 2413.

        >>> uniform = SeparablePermutation(torch.zeros(1, 10, 2))
        >>> uniform.log_prob(torch.tensor([[0, 1, 2, 3]])).exp().mul(40).round()
        tensor([5.])
        >>> uniform.log_prob(torch.tensor([[1, 3, 0, 2]]))
        tensor([-inf])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"scores": constraints.independent(constraints.real, 2)}
    split_scores_name = "scores"

    def __init__(
        self,
        scores: Float[Tensor, "batch splits 2"],
        lengths: Int[Tensor, " batch"] | None = None,
        normal_form: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        require_floats({"scores": scores})
        length = require_split_scores("scores", scores)
        self.scores = scores
        self.lengths = require_lengths("lengths", lengths, "scores", scores, length)
        self.normal_form = normal_form
        super().__init__(scores.shape[0], length, validate_args)
        if self._validate_args:
            require_range("lengths", self.lengths, "scores", scores, length)
            require_scores("scores", scores, valid_splits(length, self.lengths))

    @classmethod
    def from_dense(
        cls,
        scores: Float[Tensor, "batch i j k 2"],
        lengths: Int[Tensor, " batch"] | None = None,
        normal_form: bool = False,
    ) -> "SeparablePermutation":
        """Build it from scores ``(batch, n+1, n+1, n+1, 2)`` indexed ``[i, j, k, rule]``; only ``i < j < k`` is read.

        >>> dense = torch.zeros(1, 4, 4, 4, 2)
        >>> SeparablePermutation.from_dense(dense).log_partition().exp().round()  # the derivations of three words
        tensor([8.])
        """
        require_floats({"scores": scores})
        fenceposts = scores.shape[1] if scores.dim() == 5 else 0
        if fenceposts < 2 or tuple(scores.shape[1:]) != (fenceposts, fenceposts, fenceposts, 2):
            raise ValueError(
                f"dense scores have shape {shape_of(scores)}, but must be (batch, n+1, n+1, n+1, 2) for n words, "
                "indexed [i, j, k, rule] by fenceposts 0..n."
            )
        i, j, k = split_fenceposts(fenceposts - 1).to(scores.device).unbind(-1)
        return cls(scores[:, i, j, k], lengths, normal_form)

    def __repr__(self) -> str:
        form = ", normal_form=True" if self.normal_form else ""
        return f"SeparablePermutation(sentences: {self.batch_shape[0]}, length: {self.length}{form})"

    # --- Sums over derivations --------------------------------------------------------------------------------

    def log_partition(self) -> Float[Tensor, " batch"]:
        """The log of the summed weight of all derivations. O(n^3)."""
        return self._inside()[0]

    def rule_probabilities(self) -> Float[Tensor, "batch splits 2"]:
        """G: how probable each split and rule is for its span, given that the span is a constituent. O(n^3).

        It sums to one over the options of every span, and is zero at padding. In normal form it is that of spans which
        may use both rules (right children, and the root).
        """
        return self._rules()[0]

    def option_weights(self) -> Float[Tensor, "batch splits 2"]:
        """The same as `rule_probabilities`."""
        return self.rule_probabilities()

    def rule_marginals(self) -> Float[Tensor, "batch splits 2"]:
        """The probability that a derivation contains each split with each rule; zero at padding. O(n^3).

        >>> uniform = SeparablePermutation(torch.zeros(1, 4, 2, dtype=torch.float64))
        >>> uniform.rule_marginals().sum()  # two nodes in every tree over three words
        tensor(2., dtype=torch.float64)
        """
        return kernels.rule_marginals(*self._rules())

    def expected_matrix(self) -> Float[Tensor, "batch position token"]:
        """E[M][position, token], the marginal probability that the token stands there; identity at padding. O(n^4).

        With ``mu(i,k,p)`` the probability that (i,k) is a constituent whose output starts at p, from the root down:

            S:  mu(i,j,p)     += G_S mu(i,k,p)      mu(j,k,p+j-i) += G_S mu(i,k,p)
            I:  mu(i,j,p+k-j) += G_I mu(i,k,p)      mu(j,k,p)     += G_I mu(i,k,p)

        and ``E[M][p, t] = mu(t, t+1, p)``.
        """
        return kernels.expected_matrix(*self._rules())

    def approximate_matrix(self, max_loss: float = 1e-6) -> Float[Tensor, "batch position token"]:
        """The expected matrix without improbable rules; each entry is too small by at most ``max_loss``.

        Every entry is a probability of derivations. Without a rule, it loses at most the probability that a derivation
        contains that rule (`rule_marginals`), so that all rules that are left out lose at most the sum of theirs. The
        time is proportional to n times the number of rules that remain.

        >>> distribution = SeparablePermutation(torch.randn(1, 20, 2))
        >>> error = distribution.expected_matrix() - distribution.approximate_matrix(max_loss=0.1)
        >>> bool((error > -1e-6).all()), bool((error < 0.1).all())
        (True, True)
        """
        if self.normal_form:
            return self.expected_matrix()
        rules, lengths = self._rules()
        rules = rules.float()  # only the charts need double precision, for differences of large numbers
        marginals = kernels.rule_marginals(rules, lengths)
        threshold = max_loss
        while float(_sum_below(marginals, threshold).max()) > max_loss:
            threshold /= 4
        matrix = kernels.expected_matrix(rules.masked_fill(marginals < threshold, 0.0), lengths)
        return matrix.to(self.scores.dtype)

    def tagging_posterior(self, emissions: Float[Tensor, "1 token position"]) -> TaggingPosterior:
        """The posterior of derivations of a single sentence, ``p(D | output)``; see `TaggingPosterior`. O(n^4).

        Raises:
            ValueError: no derivation can write the output, or there are several sentences.

        >>> two_words = SeparablePermutation(torch.tensor([[[3.0, 1.0]]]).log())
        >>> emissions = torch.tensor([[[0.1, 0.8], [0.9, 0.2]]]).log()  # the second token probably wrote the first word
        >>> posterior = two_words.tagging_posterior(emissions)
        >>> posterior.derivation.order, posterior.alignment  # 1 * 0.9 * 0.8 against 3 * 0.1 * 0.2
        ((1, 0), tensor([[0.0769, 0.9231],
                [0.9231, 0.0769]], dtype=torch.float64))
        """
        if self.batch_shape[0] != 1 or int(self.lengths[0]) != self.length:
            raise ValueError(
                f"the distribution has {self.batch_shape[0]} sentences with room for {self.length} words, but a "
                "posterior belongs to a single sentence without padding. Build a distribution of that sentence alone."
            )
        log_partition = float(self.double().log_partition().detach())
        return tagging_posterior(self.scores, self.lengths, self.normal_form, emissions, log_partition)

    def with_segments(
        self,
        segment_log_probs: Float[Tensor, "batch leaves starts sizes"],
        target_lengths: Int[Tensor, " batch"],
        phrase_scores: Float[Tensor, "batch phrases"] | None = None,
    ) -> "SynchronousPermutation":
        """See `OrderDistribution.with_segments`."""
        from permalign.structures.synchronous import SynchronousPermutation  # which is built on this module

        return SynchronousPermutation(
            self.scores.to(segment_log_probs),
            segment_log_probs,
            self.lengths,
            target_lengths,
            self.normal_form,
            validate_args=False,
            phrase_scores=phrase_scores,
        )

    # --- What OrderDistribution needs -------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        return {"scores": self.scores, "lengths": self.lengths, "normal_form": self.normal_form}

    def _tagging_inside(self, emissions: Tensor) -> Tensor:
        return kernels.tagging_inside(self.scores, emissions, self.lengths, self.normal_form)

    def _expected_weight(self) -> Tensor:
        scores = self.scores
        if torch.compiler.is_compiling() or bool((self.lengths < self.length).any()):
            scores = mask_padding(scores, self.lengths)
        return torch.einsum("btr,btr->b", self.rule_marginals(), scores)  # whose product takes no memory

    def _relaxed_matrix(self, temperature: float, hard: bool, generator: torch.Generator | None) -> Tensor:
        gamma = self._chart()
        noisy = (gamma + gumbel_noise(gamma, generator)) / temperature
        rules, lengths, *given_rule = self._rules_of(noisy)  # the last one in normal form only
        if hard:
            rules = _straight_through(rules, lengths)
            given_rule = [_straight_through(options, lengths, within_rule=True) for options in given_rule]
        return kernels.expected_matrix(rules, lengths, *given_rule)

    def _chart(self, maximise: bool = False) -> Tensor:
        """gamma, or its maximum, of every split and rule."""
        if maximise:
            return kernels.best_inside(self.scores, self.lengths, self.normal_form)[1]
        return self._inside()[1]

    @property
    def _draws(self) -> int:
        return self.length - 1

    def _walk(self, chart: Tensor, uniforms: Tensor | None) -> tuple[Tensor, None, Tensor]:
        nodes, orders = kernels.walk(chart, self.lengths, uniforms, self.normal_form)
        return nodes, None, orders

    def _tree_weight(self, row: int, tree: Tree) -> Tensor:
        nodes = torch.tensor(tree.to_nodes(), dtype=torch.int64, device=self.scores.device)
        start, middle, end, rule = nodes.view(-1, 4).unbind(-1)
        return self.scores[row, split_index(self.length, start, middle, end), rule].sum()

    def _forest(self) -> SeparableForest:
        return SeparableForest(self.scores[0], self._chart(maximise=True)[0], self.length, self.normal_form)

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _inside(self) -> tuple[Tensor, Tensor]:
        """The log-partition and gamma; computed once where no gradient can flow through them."""
        if self.scores.requires_grad or torch.compiler.is_compiling():
            return kernels.inside(self.scores, self.lengths, self.normal_form)
        return self._constant_inside

    @cached_property
    def _constant_inside(self) -> tuple[Tensor, Tensor]:
        return kernels.inside(self.scores, self.lengths, self.normal_form)

    def _rules(self) -> tuple[Tensor, ...]:
        """`_rules_of` gamma; computed once where no gradient can flow through them."""
        if self.scores.requires_grad or torch.compiler.is_compiling():
            return self._rules_of(self._chart())
        return self._constant_rules

    @cached_property
    def _constant_rules(self) -> tuple[Tensor, ...]:
        return self._rules_of(self._chart())

    def _rules_of(self, gamma: Tensor) -> tuple[Tensor, ...]:
        """The arguments of kernels: probabilities of options, lengths, and in normal form those given the rule."""
        rules = kernels.span_softmax(gamma, self.lengths)
        if not self.normal_form:
            return rules, self.lengths
        return rules, self.lengths, kernels.span_softmax(gamma, self.lengths, within_rule=True)


def _sum_below(marginals: Tensor, threshold: float) -> Tensor:
    """The sum ``(batch,)`` of the marginals that are below a threshold, in blocks, so that it takes little memory."""
    blocks = marginals.split(BLOCK, dim=1)
    return torch.stack([block.masked_fill(block >= threshold, 0.0).sum((1, 2)) for block in blocks]).sum(0)


def _straight_through(rules: Tensor, lengths: Tensor, within_rule: bool = False) -> Tensor:
    """One for the most probable option of every span, with the gradient of the probabilities."""
    return kernels.span_one_hot(rules, lengths, within_rule) + (rules - rules.detach())


def _kl_separable(p: SeparablePermutation, q: SeparablePermutation) -> Tensor:
    """``sum(marginals_p * (scores_p - scores_q)) - log Z_p + log Z_q``, in double precision."""
    if (
        p.normal_form != q.normal_form
        or p.scores.shape != q.scores.shape
        or bool((p.lengths != q.lengths).any())
    ):
        raise ValueError(
            f"kl_divergence of {p!r} and {q!r}: both must have the same batch, lengths and normal_form."
        )
    p64, q64 = p.double(), q.double()
    difference = mask_padding(p64.scores - q64.scores, p.lengths)
    expected = (p64.rule_marginals() * difference).sum((1, 2))
    return (expected - p64.log_partition() + q64.log_partition()).to(p.scores.dtype)


register_kl(SeparablePermutation, SeparablePermutation)(_kl_separable)
