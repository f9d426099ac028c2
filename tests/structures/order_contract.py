"""What every `OrderDistribution` must satisfy, on top of the contract of all distributions.

A new grammar inherits `OrderContract`, fills the blanks of `Contract` that are left, and adds to `own_values` and
`call_own_methods` what only its trees have.
"""

from abc import abstractmethod
from collections import Counter
from itertools import permutations

import pytest
import torch
from tests.structures.contract import Contract, assert_frequencies, seeded

from permalign.structures import OrderDistribution
from permalign.structures.permutations import is_separable, separable_count


class OrderContract(Contract):
    # ---------------------------------------------------------------- blanks
    @abstractmethod
    def own_values(self, distribution):
        """Everything with a value and a gradient that only this grammar has."""

    def call_own_methods(self, distribution):
        """Call the methods without gradient that only this grammar has."""

    # ---------------------------------------------------------------- blanks of the contract, filled
    def values(self, distribution, parameters):
        return {
            "log_partition": distribution.log_partition(),
            "rule_marginals": distribution.rule_marginals(),
            "expected_matrix": distribution.expected_matrix(),
            "log_prob": distribution.log_prob(self.reversed_orders(parameters)),
            "log_likelihood": distribution.log_likelihood(parameters["emissions"]),
            "entropy": distribution.entropy(),
            **self.own_values(distribution),
        }

    def marginals(self, distribution):
        return [distribution.rule_marginals(), distribution.expected_matrix()]

    def call_methods(self, distribution, parameters):
        self.values(distribution, parameters)
        distribution.option_weights()
        distribution.sample((2,))
        distribution.sample_derivations(2)
        distribution.relaxed_sample(0.7)
        distribution.relaxed_sample(0.7, hard=False)
        distribution.greedy_derivation()
        best = distribution.best_derivation()
        distribution.tree_log_probs([derivation.tree for derivation in best])
        distribution.derivation_of_order(self.reversed_orders(parameters))
        distribution.top_derivations(3)
        distribution.most_probable_order()
        self.call_own_methods(distribution)

    # ---------------------------------------------------------------- helpers
    @property
    def scores(self):
        """The names of the distribution's own float parameters."""
        return tuple(name for name in self.differentiable if name != "emissions")

    def reversed_orders(self, parameters):
        """The orders with the most derivations."""
        longest = parameters["emissions"].shape[1]
        return torch.tensor(
            [[*reversed(range(length)), *range(length, longest)] for length in parameters["lengths"].tolist()]
        )

    # ---------------------------------------------------------------- torch.distributions
    def test_it_is_a_torch_distribution(self):
        distribution = self.build(self.parameters([3, 4], seeded()))
        assert isinstance(distribution, torch.distributions.Distribution)
        assert isinstance(distribution, OrderDistribution)
        assert distribution.batch_shape == (2,)
        assert distribution.event_shape == (4,)
        assert distribution.length == 4

    def test_what_orders_do_not_have_names_what_to_use(self):
        distribution = self.build(self.parameters([3, 4], seeded()))
        order = torch.arange(4).expand(2, 4)
        for question, hint in (
            (lambda: distribution.mean, "expected_matrix"),
            (lambda: distribution.variance, "entropy"),
            (lambda: distribution.stddev, "entropy"),
            (lambda: distribution.rsample(), "relaxed_sample"),
            (lambda: distribution.cdf(order), "log_prob"),
            (lambda: distribution.icdf(order), "sample"),
        ):
            with pytest.raises(NotImplementedError, match=hint):
                question()
        assert not distribution.has_rsample

    def test_the_mode_is_the_most_probable_order(self):
        distribution = self.build(self.parameters(self.sizes, seeded(70), 3.0))
        found = distribution.most_probable_order()
        assert (found.gap == 0).all()
        assert torch.equal(distribution.mode, found.order)

    def test_a_mode_that_cannot_be_proven_is_refused(self):
        distribution = self.build(self.parameters([7], seeded(71), 0.0))
        if distribution.normal_form:  # the first derivation is the answer
            assert distribution.mode.shape == (1, 7)
            return
        with pytest.raises(RuntimeError, match=r"not proven.*most_probable_order"):
            _ = distribution.mode

    def test_samples_are_in_the_support(self):
        distribution = self.build(self.parameters(self.sizes, seeded(72)))
        assert distribution.support.check(distribution.sample((3,))).all()
        assert not distribution.support.check(torch.tensor([[1, 3, 0, 2], [0, 0, 1, 2]])).any()

    def test_sampling_frequencies_of_longer_sentences(self):
        distribution = self.build(self.parameters([6, 1, 5], seeded(76)))
        samples = distribution.sample((20_000,), generator=seeded(77))
        drawn = torch.nn.functional.one_hot(samples, 6).double().mean(0)  # (batch, position, token)
        torch.testing.assert_close(drawn, distribution.expected_matrix(), atol=0.02, rtol=0)
        single = self.build(self.parameters([1, 1], seeded(78)))
        assert single.sample((3,)).tolist() == [[[0], [0]]] * 3

    @pytest.mark.parametrize("length", [1, 3, 5])
    def test_the_support_has_all_the_probability(self, length):
        distribution = self.build(self.parameters([length, length], seeded(33)))
        assert distribution.has_enumerate_support
        support = distribution.enumerate_support()
        assert support.shape == (separable_count(length), 2, length)
        assert distribution.enumerate_support(expand=False).shape == (separable_count(length), 1, length)
        assert len({tuple(order) for order in support[:, 1].tolist()}) == separable_count(length)
        total = distribution.log_prob(support).exp().sum(0)
        torch.testing.assert_close(total, torch.ones(2, dtype=torch.float64))

    def test_mixed_or_long_lengths_have_no_support_to_list(self):
        with pytest.raises(ValueError, match="length"):
            self.build(self.parameters([2, 3], seeded())).enumerate_support()
        with pytest.raises(ValueError, match="too many orders"):
            self.build(self.parameters([11], seeded())).enumerate_support()

    def test_a_batch_of_one_can_be_expanded(self):
        parameters = self.parameters([4], seeded(73))
        distribution = self.build(parameters)
        expanded = distribution.expand((3,))
        assert type(expanded) is type(distribution)
        assert expanded.batch_shape == (3,)
        assert torch.equal(expanded.log_partition(), distribution.log_partition().expand(3))
        assert expanded.sample().shape == (3, 4)
        two = self.build(self.parameters([4, 4], seeded(73)))
        assert two.expand((2,)).batch_shape == (2,)
        for shape in ((3,), (2, 2), ()):
            with pytest.raises(ValueError, match="can only be expanded"):
                two.expand(shape)

    # ---------------------------------------------------------------- the batch
    def test_some_sentences_of_a_batch(self):
        distribution = self.build(self.parameters(self.sizes, seeded(74)))
        rows = torch.tensor([3, 1, 1])
        selected = distribution.select(rows)
        torch.testing.assert_close(selected.log_partition(), distribution.log_partition()[rows])
        assert torch.equal(selected.lengths, distribution.lengths[rows])

    def test_a_batch_several_times(self):
        distribution = self.build(self.parameters(self.sizes, seeded(75)))
        repeated = distribution.repeat(2)
        assert torch.equal(repeated.lengths, distribution.lengths.repeat(2))
        torch.testing.assert_close(repeated.entropy(), distribution.entropy().repeat(2))

    # ---------------------------------------------------------------- probabilities
    def test_rows_and_columns_of_the_expected_matrix_sum_to_one(self):
        for scale in (1.0, 50.0):
            matrix = self.build(self.parameters([12, 7, 1], seeded(30), scale)).expected_matrix()
            ones = torch.ones(3, 12, dtype=torch.float64)
            torch.testing.assert_close(matrix.sum(1), ones)
            torch.testing.assert_close(matrix.sum(2), ones)
            assert torch.equal(matrix[1, 7:, 7:], torch.eye(5, dtype=torch.float64))

    @pytest.mark.parametrize("length", [1, 2, 4, 5])
    def test_probabilities_of_all_orders(self, length):
        parameters = self.parameters([length, length], seeded(32))
        distribution, twin = self.build(parameters), self.twin(parameters)
        orders = torch.tensor(list(permutations(range(length))))
        log_probs = distribution.log_prob(orders[:, None].expand(-1, 2, -1))
        assert log_probs.shape == (len(orders), 2)
        assert (log_probs <= 1e-12).all()
        torch.testing.assert_close(log_probs.exp().sum(0), torch.ones(2, dtype=torch.float64))
        if length <= max(self.sizes):  # the twin lists all trees
            torch.testing.assert_close(log_probs, twin.log_prob(orders[:, None].expand(-1, 2, -1)))
        separable = torch.tensor([is_separable(order) for order in orders.tolist()])
        assert torch.equal(log_probs.isfinite()[:, 0], separable)

    def test_gradients_of_impossible_orders_are_zero(self):
        parameters = self.leaves(self.parameters([4, 4], seeded(34)))
        orders = torch.tensor([[1, 3, 0, 2], [3, 2, 1, 0]])
        distribution = self.build(parameters)
        log_prob = distribution.log_prob(orders)
        assert log_prob[0] == -torch.inf
        log_prob[1].backward()
        for name in self.scores:
            assert parameters[name].grad.isfinite().all(), name
        for name in (distribution.split_scores_name, *distribution.token_scores_names):
            assert (parameters[name].grad[0] == 0).all(), name

    def test_impossible_emissions(self):
        parameters = self.parameters(self.sizes, seeded(43))
        emissions = parameters["emissions"]
        blocked = torch.rand(emissions.shape, generator=seeded(44)) < 0.25
        blocked &= ~torch.eye(max(self.sizes), dtype=torch.bool)  # one order always remains
        parameters["emissions"] = emissions.masked_fill(blocked, -torch.inf)
        results = []
        for make in (self.build, self.twin):
            leaves = self.leaves(parameters)
            value = make(leaves).log_likelihood(leaves["emissions"])
            value.sum().backward()
            results.append([value, *(leaves[name].grad for name in self.differentiable)])
        torch.testing.assert_close(*results)

    def test_emissions_that_leave_no_order(self):
        parameters = self.parameters([3, 4], seeded(45))
        parameters["emissions"][0, 1] = -torch.inf
        leaves = self.leaves(parameters)
        value = self.build(leaves).log_likelihood(leaves["emissions"])
        assert value[0] == -torch.inf
        assert value[1].isfinite()
        value[1].backward()
        for name in self.differentiable:
            assert leaves[name].grad.isfinite().all(), name

    # ---------------------------------------------------------------- derivations
    def test_trees_know_their_probability(self):
        distribution = self.build(self.parameters(self.sizes, seeded(76)))
        for ranked in zip(*distribution.top_derivations(1), strict=True):
            found = distribution.tree_log_probs([derivation.tree for derivation in ranked])
            assert found == pytest.approx([derivation.log_prob for derivation in ranked])
        with pytest.raises(ValueError, match="one tree for each"):
            distribution.tree_log_probs([])

    def test_sampled_derivations_have_the_orders_of_samples(self):
        parameters = self.parameters(self.sizes, seeded(77))
        distribution = self.build(parameters)
        drawn = distribution.sample_derivations(5, seeded(78))
        orders = distribution.sample((5,), generator=seeded(78))
        for row, length in enumerate(parameters["lengths"].tolist()):
            assert [list(derivation.order) for derivation in drawn[row]] == orders[:, row, :length].tolist()
            for derivation in drawn[row]:
                (log_prob,) = self.build(self.alone(parameters, row, length)).tree_log_probs(
                    [derivation.tree]
                )
                assert derivation.log_prob == pytest.approx(log_prob)

    def test_the_derivation_of_an_order_is_its_best(self):
        distribution = self.build(self.parameters([4, 4], seeded(79)))
        ranked = distribution.top_derivations(50)
        for place in range(10):
            orders = torch.tensor([candidates[place].order for candidates in ranked])
            found = distribution.derivation_of_order(orders)
            for derivation, order, candidates in zip(found, orders.tolist(), ranked, strict=True):
                best = next(candidate for candidate in candidates if list(candidate.order) == order)
                assert derivation.tree == best.tree
                assert derivation.log_prob == pytest.approx(best.log_prob)

    def test_an_order_that_is_not_separable_has_no_derivation(self):
        distribution = self.build(self.parameters([4], seeded(80)))
        assert distribution.derivation_of_order(torch.tensor([[1, 3, 0, 2]])) == [None]

    @pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
    def test_most_probable_order_equals_the_twin(self, scale):
        parameters = self.parameters(self.sizes, seeded(42), scale)
        distribution = self.build(parameters)
        ours, theirs = distribution.most_probable_order(), self.twin(parameters).most_probable_order()
        assert (ours.gap >= 0).all()
        torch.testing.assert_close(ours.log_prob, distribution.log_prob(ours.order))
        assert (theirs.log_prob.exp() <= ours.log_prob.exp() + ours.gap + 1e-12).all()
        proven = ours.gap == 0
        assert proven.any()
        assert torch.equal(ours.order[proven], theirs.order[proven])
        torch.testing.assert_close(ours.log_prob[proven], theirs.log_prob[proven])

    # ---------------------------------------------------------------- relaxed samples
    def test_hard_relaxed_samples_are_exact_samples(self):
        parameters = self.parameters([3], seeded(47))
        matrices = self.build(parameters).repeat(20_000).relaxed_sample(0.8, generator=seeded(48))
        assert ((matrices == 0) | (matrices == 1)).all()
        drawn = Counter(map(tuple, matrices.argmax(-1).tolist()))
        assert_frequencies(drawn, self.outcomes(self.twin(parameters), 0))

    def test_soft_relaxed_samples_are_doubly_stochastic(self):
        distribution = self.build(self.parameters(self.sizes, seeded(49)))
        ones = torch.ones(len(self.sizes), max(self.sizes), dtype=torch.float64)
        for temperature in (0.2, 1.0, 5.0):
            matrix = distribution.relaxed_sample(temperature, hard=False, generator=seeded(50))
            torch.testing.assert_close(matrix.sum(1), ones)
            torch.testing.assert_close(matrix.sum(2), ones)
            assert (matrix >= 0).all()

    def test_cold_relaxed_samples_are_hard(self):
        distribution = self.build(self.parameters(self.sizes, seeded(51)))
        soft = distribution.relaxed_sample(1e-4, hard=False, generator=seeded(52))
        hard = distribution.relaxed_sample(1e-4, hard=True, generator=seeded(52))
        torch.testing.assert_close(soft, hard, atol=1e-6, rtol=0)

    def test_relaxed_samples_keep_padding_in_its_place(self):
        matrix = self.build(self.parameters([2, 5], seeded(53))).relaxed_sample(1.0)
        assert torch.equal(matrix[0, 2:, 2:], torch.eye(3, dtype=torch.float64))

    def test_gradcheck_of_soft_relaxed_samples(self):
        parameters = self.leaves(self.parameters([self.small, 2], seeded(54)))

        def sample(*scores):
            distribution = self.build(parameters | dict(zip(self.scores, scores, strict=True)))
            return distribution.relaxed_sample(0.9, hard=False, generator=seeded(55))

        assert torch.autograd.gradcheck(sample, tuple(parameters[name] for name in self.scores))

    def test_hard_relaxed_samples_pass_gradients(self):
        parameters = self.leaves(self.parameters([5, 3], seeded(56)))
        matrix = self.build(parameters).relaxed_sample(1.0, hard=True, generator=seeded(57))
        weights = torch.randn(matrix.shape, dtype=torch.float64, generator=seeded(58))
        (matrix * weights).sum().backward()
        for name in self.scores:
            assert parameters[name].grad.isfinite().all(), name
            assert parameters[name].grad.abs().sum() > 0, name

    def test_relaxed_samples_stay_finite(self):
        for scale, temperature in ((1e6, 0.1), (1.0, 1e-6)):
            parameters = self.leaves(self.parameters(self.sizes, seeded(59), scale))
            matrix = self.build(parameters).relaxed_sample(temperature, generator=seeded(60))
            matrix.square().sum().backward()
            assert matrix.isfinite().all()
            assert all(parameters[name].grad.isfinite().all() for name in self.scores)
