"""Distributions over separable permutations: the reorderings a bracketing transduction grammar can make."""

from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from permalign import kernels
from permalign.checks import (
    require_finite,
    require_floats,
    require_lengths,
    require_no_nan_or_plus,
    require_range,
    sample_count,
    shape_of,
)
from permalign.kernels.layout import (
    inside_square,
    length_of_split_count,
    mask_padding,
    split_fenceposts,
    split_index,
    valid_splits,
)
from permalign.shapes import Float, Int
from permalign.structures.derivations import Derivation, Tree
from permalign.structures.permutations import separable_permutations
from permalign.structures.restriction import LOG_ZERO, minus_infinity_below, splits_of_order
from permalign.structures.search import Order, ProbableOrder, derivations_of, search_order
from permalign.structures.support import SeparableOrders, require_orders, wrong_scores


class SeparablePermutation(Distribution):
    r"""A distribution over derivations of separable permutations, and through them over permutations.

    A derivation is a binary tree over the words of a sentence, each node straight (S: left part, then right part)
    or inverted (I: right part, then left part). Its probability is proportional to the exponential of the sum of its
    splits' scores; a permutation's is the sum over its derivations. Everything is exact, batched with padding, and
    differentiable in the scores where that makes sense:

        gamma(i,j,k,R) = score(i,j,k,R) + beta(i,j) + beta(j,k)         beta(i,k) = logsumexp_{j,R} gamma(i,j,k,R)
        log Z = beta(0,n)                                                G(j,R | i,k) = exp(gamma - beta(i,k))

    An order is a permutation written as ``order[position] = token``; a matrix is ``M[position, token]``, so that
    ``M @ states`` reorders states. The batch is the number of sentences, an event is an order of ``n`` tokens.
    Padding keeps its place.

    Args:
        scores: ``(batch, T, 2)`` with ``T = (n^3 - n) / 6`` splits packed by width, then start, then middle; rule 0
            is straight, 1 inverted. See `from_dense` for scores indexed ``[i, j, k, rule]``.
        lengths: ``(batch,)``, the number of words of every sentence; None means ``n`` for all.
        normal_form: forbid a straight node with a straight left child and an inverted node with an inverted left
            child: then every permutation has exactly one derivation, `best_derivation` yields the most probable
            permutation, and entropy and KL are of permutations.

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
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"scores": constraints.independent(constraints.real, 2)}
    has_enumerate_support = True

    def __init__(
        self,
        scores: Float[Tensor, "batch splits 2"],
        lengths: Int[Tensor, " batch"] | None = None,
        normal_form: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        require_floats({"scores": scores})
        words = length_of_split_count(scores.shape[1]) if scores.dim() == 3 and scores.shape[2] == 2 else None
        if words is None:
            raise ValueError(wrong_scores(scores))
        self.scores = scores
        self.lengths = require_lengths("lengths", lengths, "scores", scores, words)
        self.normal_form = normal_form
        super().__init__(scores.shape[:1], torch.Size([words]), validate_args=False)
        if validate_args is None:
            validate_args = Distribution._validate_args
        if validate_args:
            require_range("lengths", self.lengths, "scores", scores, words)
            require_finite("scores", scores, valid_splits(words, self.lengths))
        self._validate_args = bool(validate_args)

    @classmethod
    def from_dense(
        cls,
        scores: Float[Tensor, "batch i j k 2"],
        lengths: Int[Tensor, " batch"] | None = None,
        normal_form: bool = False,
    ) -> "SeparablePermutation":
        """From scores ``(batch, n+1, n+1, n+1, 2)`` indexed ``[i, j, k, rule]``; only ``i < j < k`` is read.

        >>> dense = torch.zeros(1, 4, 4, 4, 2)
        >>> SeparablePermutation.from_dense(dense).log_partition().exp().round()  # the derivations of three words
        tensor([8.])
        """
        require_floats({"scores": scores})
        posts = scores.shape[1] if scores.dim() == 5 else 0
        if posts < 2 or tuple(scores.shape[1:]) != (posts, posts, posts, 2):
            raise ValueError(
                f"dense scores have shape {shape_of(scores)}, but must be (batch, n+1, n+1, n+1, 2) for n words, "
                "indexed [i, j, k, rule] by fenceposts 0..n."
            )
        i, j, k = split_fenceposts(posts - 1).to(scores.device).unbind(-1)
        return cls(scores[:, i, j, k], lengths, normal_form)

    def __repr__(self) -> str:
        form = ", normal_form=True" if self.normal_form else ""
        return f"SeparablePermutation(sentences: {self.batch_shape[0]}, words: {self.words}{form})"

    @property
    def words(self) -> int:
        """The number of words there is room for, n."""
        return self.event_shape[0]

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Separable orders of ``n`` tokens."""
        return SeparableOrders()

    def expand(
        self, batch_shape: Sequence[int], _instance: "SeparablePermutation | None" = None
    ) -> "SeparablePermutation":
        """The same distribution for several sentences; only a batch of one can grow."""
        if len(batch_shape) != 1 or (
            self.batch_shape[0] != 1 and tuple(batch_shape) != tuple(self.batch_shape)
        ):
            raise ValueError(
                f"batch_shape is {tuple(batch_shape)}, but a batch of {self.batch_shape[0]} sentences can only be "
                "expanded along its one axis, and only from one sentence."
            )
        return self.select(torch.arange(self.batch_shape[0], device=self.scores.device).expand(*batch_shape))

    def double(self) -> "SeparablePermutation":
        """The same distribution in double precision."""
        return SeparablePermutation(self.scores.double(), self.lengths, self.normal_form, validate_args=False)

    def select(self, rows: Int[Tensor, " rows"]) -> "SeparablePermutation":
        """The distributions of some sentences, in any order and number."""
        return SeparablePermutation(
            self.scores[rows], self.lengths[rows], self.normal_form, validate_args=False
        )

    # --- Sums over derivations --------------------------------------------------------------------------------

    def log_partition(self) -> Float[Tensor, " batch"]:
        """The log of the summed weight of all derivations. O(n^3)."""
        return self._inside()[0]

    def rule_probabilities(self) -> Float[Tensor, "batch splits 2"]:
        """G: how probable each split and rule is for its span, given that the span is a constituent. O(n^3).

        Sums to one over the options of every span, and is zero at padding. In normal form the span is one that no
        rule is forbidden to (a right child, or the root).
        """
        return kernels.span_softmax(self._inside()[1], self.lengths)

    def rule_marginals(self) -> Float[Tensor, "batch splits 2"]:
        """The probability that a derivation contains each split with each rule; zero at padding. O(n^3).

        >>> uniform = SeparablePermutation(torch.zeros(1, 4, 2, dtype=torch.float64))
        >>> uniform.rule_marginals().sum()  # two nodes in every tree over three words
        tensor(2., dtype=torch.float64)
        """
        return kernels.rule_marginals(*self._rules(self._inside()[1]))

    def expected_matrix(self) -> Float[Tensor, "batch position token"]:
        """E[M][position, token], the marginal probability that the token stands there; identity at padding. O(n^4).

        With ``mu(i,k,p)`` the probability that (i,k) is a constituent whose output starts at p, from the root down:

            S:  mu(i,j,p)     += G_S mu(i,k,p)      mu(j,k,p+j-i) += G_S mu(i,k,p)
            I:  mu(i,j,p+k-j) += G_I mu(i,k,p)      mu(j,k,p)     += G_I mu(i,k,p)

        and ``E[M][p, t] = mu(t, t+1, p)``.
        """
        return kernels.expected_matrix(*self._rules(self._inside()[1]))

    def log_likelihood(self, emissions: Float[Tensor, "batch token position"]) -> Float[Tensor, " batch"]:
        """Exactly ``log E_D prod_p exp(emissions[token at p, p])``: the likelihood of a tagging. O(n^4).

        Args:
            emissions: ``(batch, n, n)`` indexed ``[token, position]``: the log-probability that the token emits the
                output's word at that position; -inf where it cannot.

        The sum runs over all derivations, with ``C(i,i+1,p) = emission(i, p)`` and

            C(i,k,p) = logsumexp_j { score_S + C(i,j,p) + C(j,k,p+j-i),  score_I + C(j,k,p) + C(i,j,p+k-j) }

        Its gradient in the emissions is the posterior of alignments, in the scores the posterior of rules minus the
        prior one.

        >>> two_words = SeparablePermutation(torch.tensor([[[3.0, 1.0]]]).log())
        >>> swapped = torch.tensor([[[-torch.inf, 0.0], [0.0, -torch.inf]]])  # token 0 can only stand second
        >>> two_words.log_likelihood(swapped).exp()
        tensor([0.2500])
        """
        require_floats({"scores": self.scores, "emissions": emissions})
        expected = (self.batch_shape[0], self.words, self.words)
        if tuple(emissions.shape) != expected:
            raise ValueError(
                f"emissions has shape {shape_of(emissions)}, but must be {expected}: (batch, token, position)."
            )
        if self._validate_args:
            require_no_nan_or_plus("emissions", emissions, inside_square(self.lengths, self.words))
        finite = emissions.clamp(min=LOG_ZERO)
        total = kernels.tagging_inside(self.scores, finite, self.lengths, self.normal_form)
        return minus_infinity_below(total - self.log_partition(), total)

    def log_prob(self, value: Int[Tensor, "*samples batch n"]) -> Float[Tensor, "*samples batch"]:
        """The log-probability of an order, summed over its derivations; -inf if it is not separable. O(n^3).

        The inside sum again, restricted to splits whose two parts and whole the order keeps contiguous, with the
        rule the order dictates.

        >>> uniform = SeparablePermutation(torch.zeros(1, 10, 2))
        >>> uniform.log_prob(torch.tensor([[0, 1, 2, 3]])).exp().mul(40).round()  # 5 of 40 trees keep the order
        tensor([5.])
        >>> uniform.log_prob(torch.tensor([[1, 3, 0, 2]]))  # 2413
        tensor([-inf])
        """
        require_orders(value, self.scores, self.lengths, self.words, self._validate_args)
        order = value.long()
        samples = order.shape[:-2]
        order = order.reshape(-1, self.words)
        copies = order.shape[0] // self.batch_shape[0]
        if copies == 0:
            return self.scores.new_zeros((*samples, self.batch_shape[0]))
        scores, lengths = self.scores.repeat(copies, 1, 1), self.lengths.repeat(copies)
        restricted = scores.masked_fill(~splits_of_order(order), LOG_ZERO)
        total = kernels.inside(restricted, lengths, self.normal_form)[0]
        log_prob = minus_infinity_below(total - self.log_partition().repeat(copies), total)
        return log_prob.view(*samples, self.batch_shape[0])

    def entropy(self) -> Float[Tensor, " batch"]:
        """The entropy of derivations, in nats (in normal form: of permutations). O(n^3).

        ``log Z - sum(marginals * scores)``: a difference of large numbers, so computed in double precision.
        """
        exact = self.double()
        expected_score = (exact.rule_marginals() * mask_padding(exact.scores, self.lengths)).sum((1, 2))
        return (exact.log_partition() - expected_score).to(self.scores.dtype)

    # --- Sampling ---------------------------------------------------------------------------------------------

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Int[Tensor, "*samples batch n"]:
        """Exact samples of orders, ``(*sample_shape, batch, n)``: n - 1 draws on the way down a tree."""
        with torch.no_grad():
            copies = sample_count(sample_shape)
            uniforms = torch.rand(
                (copies, self.batch_shape[0], self.words - 1),
                generator=generator,
                dtype=self.scores.dtype,
                device=self.scores.device,
            )
            _, orders = kernels.walk(self._inside()[1], self.lengths, uniforms, self.normal_form)
        return orders.view(*sample_shape, self.batch_shape[0], self.words)

    def relaxed_sample(
        self, temperature: float, hard: bool = True, generator: torch.Generator | None = None
    ) -> Float[Tensor, "batch position token"]:
        """A permutation matrix sampled by Gumbel-softmax over the options of every span. O(n^4).

        With ``hard`` the matrix is an exact sample, a true permutation, and its gradient is that of the relaxed one
        (straight-through); without, it is the relaxed one, whose rows and columns still sum to one.
        """
        if not 0 < temperature < inf:
            raise ValueError(
                f"temperature is {temperature}, but must be above 0 and finite. The paper searches 0.1 to 10."
            )
        gamma = self._inside()[1]
        uniform = torch.rand(gamma.shape, generator=generator, dtype=gamma.dtype, device=gamma.device)
        tiny = torch.finfo(gamma.dtype).tiny
        gumbel = -(-uniform.clamp(min=tiny).log()).clamp(min=tiny).log()
        rules, lengths, *within = self._rules((gamma + gumbel) / temperature)
        if hard:
            rules = _straight_through(rules, lengths)
            within = [_straight_through(part, lengths, within_rule=True) for part in within]
        return kernels.expected_matrix(rules, lengths, *within)

    # --- Single derivations and orders ------------------------------------------------------------------------

    def greedy_derivation(self) -> list[Derivation]:
        """The locally most probable option of every span, from the root down, as the paper decodes.

        Greedy: neither the most probable derivation (`best_derivation`) nor permutation (`most_probable_order`).
        """
        return self._walked(self._inside()[1])

    def best_derivation(self) -> list[Derivation]:
        """The most probable derivation of every sentence (Viterbi: the maximum in place of the sum). O(n^3)."""
        return self._walked(kernels.best_inside(self.scores, self.lengths, self.normal_form)[1])

    def top_derivations(self, k: int) -> list[list[Derivation]]:
        """The k most probable derivations of every sentence, best first; all of them where there are fewer."""
        if k < 1:
            raise ValueError(f"k is {k}, but must be at least 1.")
        return [list(islice(derivations_of(one, self.normal_form), k)) for one in self._sentences()]

    def most_probable_order(self, derivations: int = 1000) -> ProbableOrder:
        """The most probable permutation, with a certificate.

        Derivations come best first; each new order is scored exactly, over all its derivations. No other order can
        have more than the mass not yet seen, so once the best has at least that much it is proven. The search stops
        there, or after ``derivations`` derivations with the gap that is left. In normal form the first derivation is
        the answer.
        """
        if derivations < 1:
            raise ValueError(f"derivations is {derivations}, but the search needs at least 1.")
        orders = torch.arange(self.words).repeat(self.batch_shape[0], 1)
        log_probs, gaps = [], []
        for index, scores in enumerate(self._sentences()):
            sentence = SeparablePermutation(scores, None, self.normal_form, validate_args=False)
            ranked = derivations_of(scores, self.normal_form)
            order, log_prob, gap = search_order(ranked, sentence._log_probs, derivations, self.normal_form)
            orders[index, : sentence.words] = torch.tensor(order)
            log_probs.append(log_prob)
            gaps.append(gap)
        tensor = self.scores.new_tensor
        return ProbableOrder(orders.to(self.scores.device), tensor(log_probs), tensor(gaps))

    def enumerate_support(self, expand: bool = True) -> Int[Tensor, "orders batch n"]:
        """All separable orders, ``(number, batch, n)``: 1, 2, 6, 22, 90, ... of them, for one length up to 10."""
        length = int(self.lengths[0])
        if bool((self.lengths != length).any()):
            raise ValueError(
                f"lengths are {self.lengths.tolist()}, but only sentences of one length have one support. "
                "Enumerate each length on its own."
            )
        if length > 10:
            raise ValueError(
                f"a sentence of {length} words has too many orders to list; at most 10 words (206,098 orders). "
                "Use sample or top_derivations."
            )
        padding = tuple(range(length, self.words))
        orders = torch.tensor([order + padding for order in separable_permutations(length)])
        orders = orders.to(self.scores.device)[:, None]
        return orders.expand(-1, self.batch_shape[0], -1) if expand else orders

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _inside(self) -> tuple[Tensor, Tensor]:
        return kernels.inside(self.scores, self.lengths, self.normal_form)

    def _rules(self, gamma: Tensor) -> tuple[Tensor, ...]:
        """Probabilities of options, the lengths, and in normal form the options given the rule."""
        rules = kernels.span_softmax(gamma, self.lengths)
        if not self.normal_form:
            return rules, self.lengths
        return rules, self.lengths, kernels.span_softmax(gamma, self.lengths, within_rule=True)

    def _sentences(self) -> Iterator[Tensor]:
        """The scores ``(1, T, 2)`` of every sentence by itself: double precision, no padding, no gradient."""
        keep = valid_splits(self.words, self.lengths)  # what is left is packed for the shorter sentence
        for index in range(self.batch_shape[0]):
            yield self.scores.detach()[index : index + 1, keep[index]].double()

    def _log_probs(self, orders: list[Order]) -> list[float]:
        """The log-probabilities of orders of a single sentence."""
        return self.log_prob(torch.tensor(orders, device=self.scores.device)[:, None]).flatten().tolist()

    def _walked(self, weights: Tensor) -> list[Derivation]:
        """The derivation that takes the heaviest option of every span it meets."""
        (nodes,), _ = kernels.walk(weights, self.lengths, None, self.normal_form)
        log_partitions = self.double().log_partition()
        derivations = []
        for row, length in enumerate(self.lengths.tolist()):
            chosen = nodes[row, : length - 1]
            start, middle, end, rule = chosen.unbind(-1)
            scores = self.scores[row, split_index(self.words, start, middle, end), rule]
            log_prob = scores.double().sum() - log_partitions[row]
            tree = Tree.from_nodes(chosen.tolist(), length)
            derivations.append(Derivation(tree, tree.order, min(0.0, log_prob.item())))
        return derivations


def _straight_through(rules: Tensor, lengths: Tensor, within_rule: bool = False) -> Tensor:
    """One for the most probable option of every span, with the gradient of the probabilities."""
    return kernels.span_one_hot(rules, lengths, within_rule) + (rules - rules.detach())
