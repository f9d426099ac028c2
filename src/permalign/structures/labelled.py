"""Distributions over separable permutations whose trees carry latent labels."""

from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from permalign import kernels
from permalign.checks import (
    require_floats,
    require_lengths,
    require_no_nan_or_plus,
    sample_count,
    shape_of,
)
from permalign.kernels.layout import (
    inside_square,
    mask_padding,
    masked_tokens,
    root_scores,
    split_count,
    valid_splits,
)
from permalign.kernels.portable import labelled as choices
from permalign.shapes import Float, Int
from permalign.structures.derivations import Derivation
from permalign.structures.labelled_search import derivations_of, weighed_derivations
from permalign.structures.labelled_support import require_scores
from permalign.structures.restriction import LOG_ZERO, minus_infinity_below, splits_of_order
from permalign.structures.search import Order, ProbableOrder, search_order
from permalign.structures.support import SeparableOrders, require_orders


class LabelledPermutation(Distribution):
    r"""A distribution over labelled derivations of separable permutations, and through them over permutations.

    A labelled derivation is a binary tree over the words of a sentence. Every node is straight or inverted, and every
    node and leaf has one of K labels, which nobody observes: latent categories, by which a grammar remembers what it
    has built. Its probability is proportional to the exponential of

        root(label of the root) + sum over nodes of rule(orientation, label, left label, right label)
        + sum over words of token(word, label) + sum over nodes of split(i, j, k, orientation)

    Rules are global: they do not know where they are used. Only tokens (and splits, if given) see the sentence. With
    one label, and zero rules and tokens, it is a `SeparablePermutation`. The sum over all derivations,

        beta(i,i+1,a) = token(i,a)
        beta(i,k,a) = logsumexp_{j,o,b,c} rule(o,a,b,c) + split(i,j,k,o) + beta(i,j,b) + beta(j,k,c)
        log Z = logsumexp_a root(a) + beta(0,n,a)

    takes O(n^3 K^2 + n^2 K^3): split points are summed for every pair of labels, then contracted with the rules.

    Orders, matrices, batches and padding are those of `SeparablePermutation`.

    Args:
        rule_scores: ``(2, K, K, K)`` indexed [orientation, label, left label, right label]; orientation 0 is straight,
            1 inverted.
        token_scores: ``(batch, n, K)``.
        split_scores: ``(batch, T, 2)``, packed as for `SeparablePermutation`; None means zeros.
        lengths: ``(batch,)``, the number of words of every sentence; None means ``n`` for all.
        root_scores: ``(K,)``; None means zeros.

    Example: words of label 1 come after words of label 0, whatever their order in the sentence.

        >>> rules = torch.full((2, 3, 3, 3), -20.0)
        >>> rules[0, 2, 0, 1] = rules[1, 2, 1, 0] = 0.0
        >>> tokens = torch.tensor([[[-9.0, 0.0, -9.0], [0.0, -9.0, -9.0]]])  # the first word has label 1
        >>> distribution = LabelledPermutation(rules, tokens)
        >>> print(distribution.best_derivation()[0].draw(["saw", "she"]))
        I ⇄ [2]
        ├─ saw [1]
        └─ she [0]
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "rule_scores": constraints.independent(constraints.real, 4),
        "token_scores": constraints.independent(constraints.real, 2),
        "split_scores": constraints.independent(constraints.real, 2),
        "root_scores": constraints.independent(constraints.real, 1),
    }

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
        batch, words, labels = token_scores.shape
        self.rule_scores, self.token_scores = rule_scores, token_scores
        self.lengths = require_lengths("lengths", lengths, "token_scores", token_scores, words)
        self.split_scores = (
            token_scores.new_zeros(batch, split_count(words), 2) if split_scores is None else split_scores
        )
        self.root_scores = token_scores.new_zeros(labels) if root_scores is None else root_scores
        super().__init__(token_scores.shape[:1], torch.Size([words]), validate_args=False)
        if validate_args is None:
            validate_args = Distribution._validate_args
        self._validate_args = bool(validate_args)
        require_scores(self._scores(), self.lengths, read_values=self._validate_args)

    def __repr__(self) -> str:
        return f"LabelledPermutation(sentences: {self.batch_shape[0]}, words: {self.words}, labels: {self.labels})"

    @property
    def words(self) -> int:
        """The number of words there is room for, n."""
        return self.event_shape[0]

    @property
    def labels(self) -> int:
        """The number of labels, K."""
        return self.token_scores.shape[2]

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Separable orders of ``n`` tokens."""
        return SeparableOrders()

    def expand(
        self, batch_shape: Sequence[int], _instance: "LabelledPermutation | None" = None
    ) -> "LabelledPermutation":
        """The same distribution for several sentences; only a batch of one can grow."""
        if len(batch_shape) != 1 or (
            self.batch_shape[0] != 1 and tuple(batch_shape) != tuple(self.batch_shape)
        ):
            raise ValueError(
                f"batch_shape is {tuple(batch_shape)}, but a batch of {self.batch_shape[0]} sentences can only be "
                "expanded along its one axis, and only from one sentence."
            )
        (batch,) = batch_shape
        return self._with(
            self.token_scores.expand(batch, -1, -1),
            self.split_scores.expand(batch, -1, -1),
            self.lengths.expand(batch),
        )

    def repeat(self, copies: int) -> "LabelledPermutation":
        """The distributions of a batch, all of them ``copies`` times in a row."""
        return self._with(
            self.token_scores.repeat(copies, 1, 1),
            self.split_scores.repeat(copies, 1, 1),
            self.lengths.repeat(copies),
        )

    def select(self, rows: Int[Tensor, " rows"]) -> "LabelledPermutation":
        """The distributions of some sentences, in any order and number."""
        return self._with(self.token_scores[rows], self.split_scores[rows], self.lengths[rows])

    def double(self) -> "LabelledPermutation":
        """The same distribution in double precision."""
        scores = {name: part.double() for name, part in self._scores().items()}
        return LabelledPermutation(**scores, lengths=self.lengths, validate_args=False)

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
        """How many nodes of a derivation use each rule, in the mean; a sentence of n words has n - 1 nodes."""
        return self._marginals()[2]

    def expected_matrix(self) -> Float[Tensor, "batch position token"]:
        """E[M][position, token], the marginal probability that the token stands there; identity at padding.

        ``mu(i,k,p,a)``, the probability that (i,k) is a constituent with label a whose output starts at p, flows from
        the root down. O(n^4 K^2 + n^3 K^3).
        """
        return choices.expected_matrix(*self._choices(), self.lengths)

    def log_likelihood(self, emissions: Float[Tensor, "batch token position"]) -> Float[Tensor, " batch"]:
        """Exactly ``log E_D prod_p exp(emissions[token at p, p])``: the likelihood of a tagging. O(n^4 K^2 + n^3 K^3).

        Args:
            emissions: ``(batch, n, n)`` indexed ``[token, position]``: the log-probability that the token emits the
                output's word at that position; -inf where it cannot.

        The sum runs over all labelled derivations, with ``C(i,i+1,p,a) = emission(i,p) + token(i,a)`` and

            C(i,k,p,a) = logsumexp_{j,b,c} { rule(0,a,b,c) + split(i,j,k,0) + C(i,j,p,b) + C(j,k,p+j-i,c),
                                             rule(1,a,b,c) + split(i,j,k,1) + C(i,j,p+k-j,b) + C(j,k,p,c) }

        Its gradient in the emissions is the posterior of alignments, in the rules their expected uses given the output
        minus those without it.
        """
        require_floats({"token_scores": self.token_scores, "emissions": emissions})
        expected = (self.batch_shape[0], self.words, self.words)
        if tuple(emissions.shape) != expected:
            raise ValueError(
                f"emissions has shape {shape_of(emissions)}, but must be {expected}: (batch, token, position)."
            )
        if self._validate_args:
            require_no_nan_or_plus("emissions", emissions, inside_square(self.lengths, self.words))
        finite = emissions.clamp(min=LOG_ZERO)
        total = kernels.labelled_tagging_inside(*self._parts(), finite, self.lengths)
        return minus_infinity_below(total - self.log_partition(), total)

    def log_prob(self, value: Int[Tensor, "*samples batch n"]) -> Float[Tensor, "*samples batch"]:
        """The log-probability of an order, summed over its labelled derivations; -inf if it is not separable.

        The inside sum again, restricted to splits whose two parts and whole the order keeps contiguous, with the
        orientation the order dictates. O(n^3 K^2 + n^2 K^3).
        """
        require_orders(value, self.token_scores, self.lengths, self.words, self._validate_args)
        order = value.long()
        samples = order.shape[:-2]
        order = order.reshape(-1, self.words)
        copies = order.shape[0] // self.batch_shape[0]
        if copies == 0:
            return self.token_scores.new_zeros((*samples, self.batch_shape[0]))
        copied = self.repeat(copies)
        restricted = copied.split_scores.masked_fill(~splits_of_order(order), LOG_ZERO)
        total = copied._with(copied.token_scores, restricted, copied.lengths).log_partition()
        log_prob = minus_infinity_below(total - self.log_partition().repeat(copies), total)
        return log_prob.view(*samples, self.batch_shape[0])

    def entropy(self) -> Float[Tensor, " batch"]:
        """The entropy of labelled derivations, in nats.

        ``log Z`` minus the expected score: a difference of large numbers, so computed in double precision.
        """
        exact = self.double()
        spans, splits, rules = exact._marginals()
        tokens = masked_tokens(exact.token_scores, self.lengths)
        expected = (splits * mask_padding(exact.split_scores, self.lengths)).sum((1, 2))
        expected = expected + (rules * exact.rule_scores).flatten(1).sum(1)
        expected = expected + (spans[:, : self.words] * tokens).sum((1, 2))
        expected = expected + (exact._choices()[0] * exact.root_scores).sum(1)
        return (exact.log_partition() - expected).to(self.token_scores.dtype)

    # --- Sampling ---------------------------------------------------------------------------------------------

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Int[Tensor, "*samples batch n"]:
        """Exact samples of orders, ``(*sample_shape, batch, n)``: n draws on the way down a labelled tree."""
        with torch.no_grad():
            uniforms = torch.rand(
                (sample_count(sample_shape), self.batch_shape[0], self.words),
                generator=generator,
                dtype=self.token_scores.dtype,
                device=self.token_scores.device,
            )
            orders = self._walk(self._chart(), uniforms)[2]
        return orders.view(*sample_shape, self.batch_shape[0], self.words)

    def relaxed_sample(
        self, temperature: float, hard: bool = True, generator: torch.Generator | None = None
    ) -> Float[Tensor, "batch position token"]:
        """A permutation matrix sampled by Gumbel-softmax. O(n^4 K^2 + n^3 K^3).

        A node is chosen in two steps, each with Gumbel noise: orientation and children's labels given its own label,
        then the split point given those. The root's label is a third choice. With ``hard`` the matrix is an exact
        sample, a true permutation, and its gradient is that of the relaxed one (straight-through); without, it is the
        relaxed one, whose rows and columns still sum to one.
        """
        if not 0 < temperature < inf:
            raise ValueError(
                f"temperature is {temperature}, but must be above 0 and finite. The paper searches 0.1 to 10."
            )
        chart = self._chart()
        top = root_scores(chart, self.root_scores, self.lengths)
        top = ((top + choices.gumbel(top, generator)) / temperature).softmax(-1)
        found = choices.options(chart, self.rule_scores, self.split_scores, self.lengths)
        found = choices.normalised(choices.gumbel_options(found, temperature, generator))
        if hard:
            top = choices.one_hot(top, 1) + (top - top.detach())
            found = choices.hardened(found)
        return choices.expected_matrix(top, found, self.lengths)

    # --- Single derivations and orders ------------------------------------------------------------------------

    def greedy_derivation(self) -> list[Derivation]:
        """The locally most probable label at the root and option of every node, from the root down.

        Greedy: neither the most probable derivation (`best_derivation`) nor permutation (`most_probable_order`).
        """
        return self._walked(self._chart())

    def best_derivation(self) -> list[Derivation]:
        """The most probable labelled derivation of every sentence (Viterbi). O(n^3 K^2 + n^2 K^3)."""
        return self._walked(self._chart(maximise=True))

    def top_derivations(self, k: int) -> list[list[Derivation]]:
        """The k most probable labelled derivations of every sentence, best first; all where there are fewer."""
        if k < 1:
            raise ValueError(f"k is {k}, but must be at least 1.")
        return [list(islice(one._ranked(), k)) for one in self._sentences()]

    def most_probable_order(self, derivations: int = 1000) -> ProbableOrder:
        """The most probable permutation, with a certificate; see `SeparablePermutation.most_probable_order`."""
        if derivations < 1:
            raise ValueError(f"derivations is {derivations}, but the search needs at least 1.")
        orders = torch.arange(self.words).repeat(self.batch_shape[0], 1)
        log_probs, gaps = [], []
        for index, one in enumerate(self._sentences()):
            order, log_prob, gap = search_order(one._ranked(), one._log_probs, derivations, normal_form=False)
            orders[index, : one.words] = torch.tensor(order)
            log_probs.append(log_prob)
            gaps.append(gap)
        tensor = self.token_scores.new_tensor
        return ProbableOrder(orders.to(self.token_scores.device), tensor(log_probs), tensor(gaps))

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _scores(self) -> dict[str, Tensor]:
        return {
            "rule_scores": self.rule_scores,
            "token_scores": self.token_scores,
            "split_scores": self.split_scores,
            "root_scores": self.root_scores,
        }

    def _parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What kernels take: rules, root, tokens, splits."""
        return self.rule_scores, self.root_scores, self.token_scores, self.split_scores

    def _with(self, tokens: Tensor, splits: Tensor, lengths: Tensor) -> "LabelledPermutation":
        """The same grammar over other sentences."""
        return LabelledPermutation(
            self.rule_scores, tokens, splits, lengths, self.root_scores, validate_args=False
        )

    def _chart(self, maximise: bool = False) -> Tensor:
        return kernels.labelled_chart(*self._parts(), self.lengths, maximise)

    def _choices(self) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Probabilities of the root's label, and of the options of every node."""
        chart = self._chart()
        top = root_scores(chart, self.root_scores, self.lengths).softmax(-1)
        found = choices.options(chart, self.rule_scores, self.split_scores, self.lengths)
        return top, choices.normalised(found)

    def _marginals(self) -> tuple[Tensor, Tensor, Tensor]:
        return choices.marginals(*self._choices(), self.lengths)

    def _walk(self, chart: Tensor, uniforms: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        return choices.walk(
            chart, self.rule_scores, self.root_scores, self.split_scores, self.lengths, uniforms
        )

    def _sentences(self) -> Iterator["LabelledPermutation"]:
        """Every sentence by itself: double precision, no padding, no gradient."""
        exact = self.double()
        keep = valid_splits(self.words, self.lengths)
        for index, length in enumerate(self.lengths.tolist()):
            yield LabelledPermutation(
                exact.rule_scores.detach(),
                exact.token_scores.detach()[index : index + 1, :length],
                exact.split_scores.detach()[index : index + 1, keep[index]],
                None,
                exact.root_scores.detach(),
                validate_args=False,
            )

    def _ranked(self) -> Iterator[Derivation]:
        """All labelled derivations of a single sentence, best first."""
        return derivations_of(*self._parts(), self._chart(maximise=True), self.log_partition().item())

    def _log_probs(self, orders: list[Order]) -> list[float]:
        """The log-probabilities of orders of a single sentence."""
        return (
            self.log_prob(torch.tensor(orders, device=self.token_scores.device)[:, None]).flatten().tolist()
        )

    def _walked(self, chart: Tensor) -> list[Derivation]:
        """The derivation that takes the heaviest option of every node it meets."""
        (nodes,), (leaves,), _ = self._walk(chart, None)
        with torch.no_grad():
            exact = self.double()
            return weighed_derivations(*exact._parts(), nodes, leaves, self.lengths, exact.log_partition())
