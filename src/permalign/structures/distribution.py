"""The base class of all distributions over orders of tokens, whatever the grammar of their trees."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from permalign.checks import require_floats, require_log_probs, sample_count, shape_of
from permalign.kernels.layout import inside_square, valid_splits
from permalign.notebooks import ShownInNotebooks
from permalign.shapes import Float, Int
from permalign.structures.derivations import Derivation, Tree
from permalign.structures.kbest import BestFirst, Forest, Order, ProbableOrder, search_order
from permalign.structures.log_space import LOG_ZERO, is_too_large, minus_infinity_below
from permalign.structures.orders import Orders, require_orders
from permalign.structures.splits import splits_of_order
from permalign.structures.tagging_posterior import TaggingPosterior

if TYPE_CHECKING:
    from permalign.structures.synchronous import SynchronousPermutation

Same = TypeVar(
    "Same", bound="OrderDistribution"
)  # not typing.Self, which the tests' shape checker cannot read


class OrderDistribution(ShownInNotebooks, Orders, ABC):
    """A distribution over derivations of sentences, and through them over the orders of their tokens.

    A derivation is a binary tree over the tokens of a sentence, whose nodes keep (straight) or swap (inverted) their
    two parts. Its probability is proportional to the exponential of its weight, a sum of scores; the probability of an
    order is the sum over its derivations. Everything is exact, batched with padding, and differentiable with respect to
    the scores where that makes sense.

    An order is written ``order[position] = token``; a matrix is ``M[position, token]``, so that ``M @ states`` reorders
    states. ``batch_shape`` is the number of sentences, ``event_shape`` the number of tokens there is room for, n.
    Padding keeps its place.

    A subclass defines its scores and the abstract methods; everything else follows from these.

    Attributes:
        normal_form: whether every order has exactly one derivation.
    """

    normal_form: bool = False

    split_scores_name: ClassVar[str]  # the constructor's argument of shape (batch, splits, 2)
    token_scores_names: ClassVar[tuple[str, ...]] = ()  # its arguments of shape (batch, n, ...)

    # --- What a subclass defines ------------------------------------------------------------------------------

    @abstractmethod
    def log_partition(self) -> Float[Tensor, " batch"]:
        """The log of the summed weight of all derivations."""

    @abstractmethod
    def rule_marginals(self) -> Float[Tensor, "batch splits 2"]:
        """The probability that a derivation contains each split with each rule; zero at padding."""

    @abstractmethod
    def expected_matrix(self) -> Float[Tensor, "batch position token"]:
        """E[M][position, token], the marginal probability that the token stands there; identity at padding."""

    def approximate_matrix(self, max_loss: float = 1e-6) -> Float[Tensor, "batch position token"]:
        """The expected matrix, each entry too small by at most ``max_loss``; faster where few trees are probable."""
        return self.expected_matrix()

    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """The arguments of the constructor that make this distribution, ``validate_args`` left out."""

    @abstractmethod
    def _tagging_inside(self, emissions: Tensor) -> Tensor:
        """The log of the summed weight ``(batch,)`` of all derivations with the emissions of their orders."""

    @abstractmethod
    def _expected_weight(self) -> Tensor:
        """The expected weight ``(batch,)`` of a derivation."""

    @abstractmethod
    def _relaxed_matrix(self, temperature: float, hard: bool, generator: torch.Generator | None) -> Tensor:
        """See `relaxed_sample`."""

    @abstractmethod
    def _chart(self, maximise: bool = False) -> Tensor:
        """The weights from which `_walk` chooses: sums over all derivations below, or the best of them."""

    @abstractmethod
    def _walk(self, chart: Tensor, uniforms: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """Derivations chosen from the root down: the heaviest option of every node, or drawn by uniform numbers.

        Args:
            chart: the weights of the options, from `_chart`.
            uniforms: ``(samples, batch, draws)`` with the number of draws of `_draws`; None for the heaviest.

        Returns:
            Nodes ``(samples, batch, n - 1, 4 or 5)`` in pre-order, each (start, middle, end, rule) and its label if
            there are labels; the labels of the tokens ``(samples, batch, n)``, or None; orders ``(samples, batch, n)``.
        """

    @property
    @abstractmethod
    def _draws(self) -> int:
        """How many uniform numbers one sampled derivation takes."""

    @abstractmethod
    def _tree_weight(self, row: int, tree: Tree) -> Tensor:
        """The weight of a tree of one sentence, a scalar."""

    @abstractmethod
    def _forest(self) -> Forest:
        """All trees of a single sentence without padding, for k-best search."""

    # --- The batch --------------------------------------------------------------------------------------------

    def expand(self: Same, batch_shape: Sequence[int], _instance: Distribution | None = None) -> Same:
        """The same distribution for several sentences; only a batch of one sentence can be expanded."""
        if len(batch_shape) != 1 or self.batch_shape[0] not in (1, *batch_shape):
            raise ValueError(
                f"batch_shape is {tuple(batch_shape)}, but a batch of {self.batch_shape[0]} sentences can only be "
                "expanded along its one axis, and only from one sentence. Use repeat or select for larger batches."
            )
        return self._with_rows(lambda tensor: tensor.expand(*batch_shape, *tensor.shape[1:]))

    def repeat(self: Same, copies: int) -> Same:
        """The whole batch ``copies`` times in a row: row ``copy * batch + b`` is sentence b."""
        return self._with_rows(lambda tensor: tensor.repeat(copies, *(1,) * (tensor.dim() - 1)))

    def select(self: Same, rows: Int[Tensor, " rows"]) -> Same:
        """The distributions of the sentences at these rows, in any order and number."""
        return self._with_rows(lambda tensor: tensor[rows])

    def double(self: Same) -> Same:
        """The same distribution in double precision; made once where no gradient can flow through it."""
        scores = [
            value
            for value in self._arguments().values()
            if isinstance(value, Tensor) and value.is_floating_point()
        ]
        if all(value.dtype == torch.float64 for value in scores):
            return self
        if any(value.requires_grad for value in scores) or torch.compiler.is_compiling():
            return self._doubled()
        return self._constant_double

    def _doubled(self: Same) -> Same:
        return self._with_arguments(
            {
                name: value.double()
                for name, value in self._arguments().items()
                if isinstance(value, Tensor) and value.is_floating_point()
            }
        )

    @cached_property
    def _constant_double(self: Same) -> Same:
        return self._doubled()

    # --- Sums over derivations --------------------------------------------------------------------------------

    def option_weights(self) -> Float[Tensor, "batch splits 2"]:
        """Weights proportional, within every span, to the probability of each split and rule given the span.

        See `permalign.structures.splits.span_options` for the options of one span.
        """
        return self.rule_marginals()

    def log_likelihood(self, emissions: Float[Tensor, "batch token position"]) -> Float[Tensor, " batch"]:
        """The exact log-likelihood of a tagging, ``log E_D prod_p exp(emissions[token at p, p])``.

        Args:
            emissions: ``(batch, n, n)`` indexed ``[token, position]``: the log-probability that the token emits the
                output's word at that position; -inf where it cannot.

        Its gradient with respect to the emissions is the posterior of alignments; with respect to a score, how often a
        derivation uses that score in expectation given the output, minus how often without the output.
        """
        require_floats({self.split_scores_name: self._splits, "emissions": emissions})
        expected = (self.batch_shape[0], self.length, self.length)
        if tuple(emissions.shape) != expected:
            raise ValueError(
                f"emissions has shape {shape_of(emissions)}, but must be {expected}: (batch, token, position)."
            )
        if self._validate_args:
            require_log_probs("emissions", emissions, inside_square(self.lengths, self.length))
        total = self._tagging_inside(emissions.clamp(min=LOG_ZERO))
        log_partition = self.log_partition()
        if is_too_large(log_partition):
            return self.double().log_likelihood(emissions.double()).to(emissions.dtype)
        return minus_infinity_below(total - log_partition, total)

    def log_prob(self, value: Int[Tensor, "*samples batch n"]) -> Float[Tensor, "*samples batch"]:
        """The log-probability of an order, summed over its derivations; -inf if it is not separable.

        It is the sum of `log_partition` restricted to the splits that a derivation of the order can have (see
        `permalign.structures.splits.splits_of_order`), divided by the whole sum.
        """
        require_orders(value, self.lengths, self.length, self._validate_args)
        order = value.long()
        samples = order.shape[:-2]
        order = order.reshape(-1, self.length)
        copies = order.shape[0] // self.batch_shape[0]
        if copies == 0:
            return self._splits.new_zeros((*samples, self.batch_shape[0]))
        every = self if copies == 1 else self.repeat(copies)
        total = every._restricted(order).log_partition()
        log_partition = self.log_partition()
        if is_too_large(log_partition):
            return self.double().log_prob(value).to(self._splits.dtype)
        log_prob = minus_infinity_below(total - log_partition.repeat(copies), total)
        return log_prob.view(*samples, self.batch_shape[0])

    def entropy(self) -> Float[Tensor, " batch"]:
        """The entropy of derivations, in nats (in normal form: of orders).

        It is ``log Z`` minus the expected weight, a difference of large numbers, and so computed in double precision.
        """
        exact = self.double()
        expected = exact._expected_weight()
        return (exact.log_partition() - expected).to(self._splits.dtype)

    def tagging_posterior(self, emissions: Float[Tensor, "1 token position"]) -> TaggingPosterior | None:
        """The posterior of derivations of a single sentence given its tagging; None for a grammar without this method.

        Args:
            emissions: ``(1, n, n)``, as for `log_likelihood`.
        """
        return None

    def with_segments(
        self,
        segment_log_probs: Float[Tensor, "batch leaves starts sizes"],
        target_lengths: Int[Tensor, " batch"],
        phrase_scores: Float[Tensor, "batch phrases"] | None = None,
    ) -> "SynchronousPermutation":
        """The joint distribution of these derivations and of the segments of an output that their leaves write.

        Arguments are those of `permalign.SynchronousPermutation`, and are not checked. Scores are converted to the
        dtype and the device of the segments.

        Raises:
            ValueError: this distribution cannot be joined with segments, or its leaves cannot be phrases.
        """
        raise ValueError(
            f"segments cannot be summed over the orders of a {type(self).__name__}. Use a SeparablePermutation or a "
            "LabelledPermutation."
        )

    # --- Sampling ---------------------------------------------------------------------------------------------

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Int[Tensor, "*samples batch n"]:
        """Exact samples of orders, ``(*sample_shape, batch, n)``, by one draw for every node of a tree, root first."""
        with torch.no_grad():
            uniforms = torch.rand(
                (sample_count(sample_shape), self.batch_shape[0], self._draws),
                generator=generator,
                dtype=self._splits.dtype,
                device=self._splits.device,
            )
            orders = self._walk(self._chart(), uniforms)[2]
        return orders.view(*sample_shape, self.batch_shape[0], self.length)

    @torch.no_grad()
    def sample_derivations(
        self, count: int, generator: torch.Generator | None = None
    ) -> list[list[Derivation]]:
        """Exact samples of derivations, ``count`` for every sentence: `sample` with the trees, in double precision."""
        exact, device = self.double(), self._splits.device
        uniforms = torch.rand(
            (count, self.batch_shape[0], self._draws),
            generator=generator,
            dtype=torch.float64,
            device=device if generator is None else generator.device,
        )
        nodes, leaves, _ = exact._walk(exact._chart(), uniforms.to(device))
        return exact._derivations(nodes, leaves)

    def relaxed_sample(
        self, temperature: float, hard: bool = True, generator: torch.Generator | None = None
    ) -> Float[Tensor, "batch position token"]:
        """A permutation matrix sampled by Gumbel-softmax over the options of every node.

        Args:
            temperature: the temperature of the softmax, above 0.
            hard: whether the matrix is an exact sample, a true permutation, with the gradient of the relaxed one
                (straight-through); otherwise it is the relaxed one, whose rows and columns still sum to one.
            generator: the source of the noise; None means torch's own.
        """
        if not 0 < temperature < inf:
            raise ValueError(
                f"temperature is {temperature}, but must be above 0 and finite. The paper searches 0.1 to 10."
            )
        return self._relaxed_matrix(temperature, hard, generator)

    # --- Single derivations and orders ------------------------------------------------------------------------

    def greedy_derivation(self) -> list[Derivation]:
        """The locally most probable option of every node, from the root down, as the paper decodes.

        It need not be the most probable derivation (`best_derivation`), nor its order the most probable one
        (`most_probable_order`).
        """
        return self._heaviest(self._chart())

    def best_derivation(self) -> list[Derivation]:
        """The most probable derivation of every sentence (Viterbi: the maximum in place of the sum)."""
        return self._heaviest(self._chart(maximise=True))

    def greedy_order(self) -> Int[Tensor, "batch n"]:
        """The order of `greedy_derivation`, without its tree; padding keeps its position."""
        return self._walk(self._chart(), None)[2][0]

    def best_order(self) -> Int[Tensor, "batch n"]:
        """The order of `best_derivation`, without its tree; padding keeps its position."""
        return self._walk(self._chart(maximise=True), None)[2][0]

    @torch.no_grad()
    def top_derivations(self, k: int) -> list[list[Derivation]]:
        """The k most probable derivations of every sentence, best first; all of them where there are fewer."""
        if k < 1:
            raise ValueError(f"k is {k}, but must be at least 1.")
        return [list(islice(sentence._ranked(), k)) for sentence in self._sentences()]

    @torch.no_grad()
    def derivation_of_order(self, order: Int[Tensor, "batch n"]) -> list[Derivation | None]:
        """The most probable derivation of one order for each sentence; None where the order is not separable."""
        totals = self.log_prob(order).tolist()
        restricted = self.double()._restricted(order)
        return [
            None if total == -inf else Derivation(best.tree, best.order, min(0.0, best.log_prob + total))
            for best, total in zip(restricted.best_derivation(), totals, strict=True)
        ]

    @torch.no_grad()
    def tree_log_probs(self, trees: Sequence[Tree]) -> list[float]:
        """The log-probability of one tree for each sentence, in double precision."""
        if len(trees) != self.batch_shape[0]:
            raise ValueError(
                f"{len(trees)} trees for {self.batch_shape[0]} sentences. Pass one tree for each."
            )
        exact = self.double()
        with torch.no_grad():
            totals = exact.log_partition()
            return [
                min(0.0, float(exact._tree_weight(row, tree) - totals[row])) for row, tree in enumerate(trees)
            ]

    @property
    def search_budget(self) -> int:
        """How many derivations to search in interactive use, as for explanations."""
        return 200

    @torch.no_grad()
    def most_probable_order(self, derivations: int = 1000) -> ProbableOrder:
        """The most probable order, with a certificate.

        Derivations are searched best first, and each new order is scored exactly, over all its derivations. No order
        that has not been scored can be more probable than all of these together, which is one minus the probabilities
        scored so far; so once the best order has at least that much, it is proven to be the most probable one. The
        search stops there, or after ``derivations`` derivations, and returns the gap that is left. In normal form the
        first derivation has the most probable order.
        """
        if derivations < 1:
            raise ValueError(f"derivations is {derivations}, but the search needs at least 1.")
        orders = torch.arange(self.length).repeat(self.batch_shape[0], 1)
        log_probs, gaps = [], []
        for row, sentence in enumerate(self._sentences()):
            order, log_prob, gap = search_order(
                sentence._ranked(), sentence._order_log_probs, derivations, self.normal_form
            )
            orders[row, : sentence.length] = torch.tensor(order)
            log_probs.append(log_prob)
            gaps.append(gap)
        tensor = self._splits.new_tensor
        return ProbableOrder(orders.to(self._splits.device), tensor(log_probs), tensor(gaps))

    @property
    def mode(self) -> Int[Tensor, "batch n"]:
        """The most probable order of every sentence, proven; `most_probable_order` also returns unproven ones."""
        probable = self.most_probable_order()
        if bool((probable.gap > 0).any()):
            row = int(probable.gap.argmax())
            raise RuntimeError(
                f"the mode of sentence {row} is not proven: after 1000 derivations another order could still be more "
                f"probable by {float(probable.gap[row]):.2g}. Use most_probable_order(derivations=...), which searches "
                "further and gives the best order found with this gap."
            )
        return probable.order

    # --- Behind the scenes ------------------------------------------------------------------------------------

    @property
    def _splits(self) -> Tensor:
        """The scores of splits; all results have their dtype and device."""
        splits: Tensor = self._arguments()[self.split_scores_name]
        return splits

    def _with_arguments(self: Same, changed: dict[str, Any]) -> Same:
        """The same distribution with some arguments of its constructor changed."""
        return type(self)(**(self._arguments() | changed), validate_args=False)

    def _with_rows(self: Same, change: Callable[[Tensor], Tensor]) -> Same:
        """The same grammar over other sentences: scores and lengths of the batch after a change of their rows."""
        arguments = self._arguments()
        names = (self.split_scores_name, *self.token_scores_names, "lengths")
        return self._with_arguments({name: change(arguments[name]) for name in names})

    def _restricted(self: Same, order: Tensor) -> Same:
        """The same distribution without the splits that no derivation of the orders ``(batch, n)`` contains."""
        splits = self._splits.masked_fill(~splits_of_order(order), LOG_ZERO)
        return self._with_arguments({self.split_scores_name: splits})

    def _sentences(self: Same) -> Iterator[Same]:
        """Every sentence as a batch of its own, in double precision, without padding."""
        exact = self.double()
        arguments = exact._arguments()
        # the splits of a sentence without its padding are in the packed order of the shorter length
        valid = valid_splits(self.length, self.lengths)
        for row, length in enumerate(self.lengths.tolist()):
            own = {name: arguments[name][row : row + 1, :length] for name in self.token_scores_names}
            own[self.split_scores_name] = arguments[self.split_scores_name][row : row + 1, valid[row]]
            yield exact._with_arguments({**own, "lengths": None})

    def _ranked(self) -> Iterator[Derivation]:
        """All derivations of a single sentence, best first."""
        log_partition = float(self.log_partition())
        for weight, tree in BestFirst(self._forest()):
            yield Derivation(tree, tree.order, min(0.0, weight - log_partition))

    def _order_log_probs(self, orders: list[Order]) -> list[float]:
        """The log-probabilities of orders of a single sentence."""
        value = torch.tensor(orders, device=self.lengths.device)[:, None]
        return list(map(float, self.log_prob(value).flatten().tolist()))

    def _heaviest(self, chart: Tensor) -> list[Derivation]:
        """The derivation of every sentence that takes the heaviest option of every node it meets."""
        return [derivation for (derivation,) in self._derivations(*self._walk(chart, None)[:2])]

    @torch.no_grad()
    def _derivations(self, nodes: Tensor, leaves: Tensor | None) -> list[list[Derivation]]:
        """For every sentence the derivations of all samples, from what `_walk` gives."""
        exact = self.double()
        log_partitions = exact.log_partition()
        by_sentence = []
        for row, length in enumerate(self.lengths.tolist()):
            derivations = []
            for sample, chosen in enumerate(nodes[:, row, : length - 1].tolist()):
                labels = None if leaves is None else leaves[sample, row, :length].tolist()
                tree = Tree.from_nodes(chosen, length, labels)
                log_prob = float(exact._tree_weight(row, tree) - log_partitions[row])
                derivations.append(Derivation(tree, tree.order, min(0.0, log_prob)))
            by_sentence.append(derivations)
        return by_sentence
