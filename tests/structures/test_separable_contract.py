"""`SeparablePermutation`, plain and in normal form, against the contract and its twin."""

from collections import Counter
from itertools import permutations

import pytest
import torch
from tests.structures.contract import Contract, assert_frequencies, seeded
from torch.distributions import kl_divergence

from permalign import SeparablePermutation
from permalign.structures.brute_force import EnumeratedPermutation, packed_splits
from permalign.structures.permutations import derivation_count, is_separable, separable_count


def split_count(length):
    return (length**3 - length) // 6


def splits_of(tree):
    """The splits and rules of a drawn tree, in the terms of the twin's."""
    if tree.rule is None:
        assert tree.end == tree.start + 1
        assert tree.children == ()
        return frozenset()
    left, right = tree.children
    assert (left.start, left.end, right.end) == (tree.start, right.start, tree.end)
    return frozenset({(tree.start, left.end, tree.end, tree.rule)}) | splits_of(left) | splits_of(right)


class SeparableContract(Contract):
    normal_form = False
    sizes = [1, 4, 6, 2, 5, 3]  # noqa: RUF012
    small = 4
    differentiable = ("scores", "emissions")

    def parameters(self, sizes, generator, scale=1.0):
        batch, longest = len(sizes), max(sizes)
        draw = {"dtype": torch.float64, "generator": generator}
        return {
            "scores": scale * torch.randn(batch, split_count(longest), 2, **draw),
            "emissions": torch.randn(batch, longest, longest, **draw).log_softmax(-1),
            "lengths": torch.tensor(sizes),
        }

    def alone(self, parameters, sentence, size):
        longest = parameters["emissions"].shape[1]
        kept = [place for (_, _, end), place in packed_splits(longest).items() if end <= size]
        return {
            "scores": parameters["scores"][sentence : sentence + 1, kept],
            "emissions": parameters["emissions"][sentence : sentence + 1, :size, :size],
            "lengths": torch.tensor([size]),
        }

    def padding(self, parameters):
        longest, lengths = parameters["emissions"].shape[1], parameters["lengths"]
        ends = torch.tensor([end for _, _, end in packed_splits(longest)], dtype=torch.int64)
        beyond = torch.arange(longest) >= lengths[:, None]  # (batch, token)
        return {
            "scores": (ends > lengths[:, None])[..., None].expand_as(parameters["scores"]),
            "emissions": beyond[:, :, None] | beyond[:, None, :],
        }

    def build(self, parameters):
        return SeparablePermutation(parameters["scores"], parameters["lengths"], normal_form=self.normal_form)

    def twin(self, parameters):
        return EnumeratedPermutation(parameters["scores"], parameters["lengths"], self.normal_form)

    def values(self, distribution, parameters):
        return {
            "log_partition": distribution.log_partition(),
            "rule_probabilities": distribution.rule_probabilities(),
            "rule_marginals": distribution.rule_marginals(),
            "expected_matrix": distribution.expected_matrix(),
            "log_prob": distribution.log_prob(self.reversed_orders(parameters)),
            "log_likelihood": distribution.log_likelihood(parameters["emissions"]),
            "entropy": distribution.entropy(),
        }

    def reversed_orders(self, parameters):
        """The orders with the most derivations."""
        longest = parameters["emissions"].shape[1]
        return torch.tensor(
            [[*reversed(range(length)), *range(length, longest)] for length in parameters["lengths"].tolist()]
        )

    def marginals(self, distribution):
        return [
            distribution.rule_probabilities(),
            distribution.rule_marginals(),
            distribution.expected_matrix(),
        ]

    def verbs(self, distribution, parameters):
        self.values(distribution, parameters)
        distribution.sample((2,))
        distribution.relaxed_sample(0.7)
        distribution.relaxed_sample(0.7, hard=False)
        distribution.greedy_derivation()
        distribution.best_derivation()
        distribution.top_derivations(3)
        distribution.most_probable_order()
        kl_divergence(distribution, distribution)

    def count(self, size):
        scores = torch.zeros(1, split_count(size), 2, dtype=torch.float64)
        counts = separable_count if self.normal_form else derivation_count
        return SeparablePermutation(scores, normal_form=self.normal_form).log_partition(), counts(size)

    def outcomes(self, twin, sentence):
        found = {}
        for tree, probability in zip(twin.trees(sentence), twin.log_probs(sentence).exp(), strict=True):
            order = twin.padded(tree.order)
            found[order] = found.get(order, 0.0) + float(probability)
        return found

    # ---------------------------------------------------------------- what only permutations have
    def test_it_is_a_torch_distribution(self):
        distribution = self.build(self.parameters([3, 4], seeded()))
        assert isinstance(distribution, torch.distributions.Distribution)
        assert distribution.batch_shape == (2,)
        assert distribution.event_shape == (4,)

    def test_rows_and_columns_of_the_expected_matrix_sum_to_one(self):
        for scale in (1.0, 50.0):
            matrix = self.build(self.parameters([12, 7, 1], seeded(30), scale)).expected_matrix()
            ones = torch.ones(3, 12, dtype=torch.float64)
            torch.testing.assert_close(matrix.sum(1), ones)
            torch.testing.assert_close(matrix.sum(2), ones)
            assert torch.equal(matrix[1, 7:, 7:], torch.eye(5, dtype=torch.float64))

    def test_the_rules_of_a_span_sum_to_one(self):
        lengths = [5, 3]
        rules = self.build(self.parameters(lengths, seeded(31))).rule_probabilities()
        for sentence, length in enumerate(lengths):
            totals = {}
            for (start, _, end), place in packed_splits(5).items():
                totals[start, end] = totals.get((start, end), 0) + float(rules[sentence, place].sum())
            for (_, end), total in totals.items():
                assert total == pytest.approx(1.0 if end <= length else 0.0)

    @pytest.mark.parametrize("length", [1, 2, 4, 5])
    def test_probabilities_of_all_orders(self, length):
        parameters = self.parameters([length, length], seeded(32))
        distribution, twin = self.build(parameters), self.twin(parameters)
        orders = torch.tensor(list(permutations(range(length))))
        log_probs = distribution.log_prob(orders[:, None].expand(-1, 2, -1))
        assert log_probs.shape == (len(orders), 2)
        assert (log_probs <= 1e-12).all()
        torch.testing.assert_close(log_probs.exp().sum(0), torch.ones(2, dtype=torch.float64))
        torch.testing.assert_close(log_probs, twin.log_prob(orders[:, None].expand(-1, 2, -1)))
        separable = torch.tensor([is_separable(order) for order in orders.tolist()])
        assert torch.equal(log_probs.isfinite()[:, 0], separable)

    @pytest.mark.parametrize("length", [1, 3, 5])
    def test_the_support(self, length):
        distribution = self.build(self.parameters([length, length], seeded(33)))
        support = distribution.enumerate_support()
        assert support.shape == (separable_count(length), 2, length)
        assert len({tuple(order) for order in support[:, 1].tolist()}) == separable_count(length)
        total = distribution.log_prob(support).exp().sum(0)
        torch.testing.assert_close(total, torch.ones(2, dtype=torch.float64))

    def test_mixed_lengths_have_no_common_support(self):
        with pytest.raises(ValueError, match="length"):
            self.build(self.parameters([2, 3], seeded())).enumerate_support()

    def test_gradients_of_impossible_orders_are_zero(self):
        parameters = self.leaves(self.parameters([4, 4], seeded(34)))
        orders = torch.tensor([[1, 3, 0, 2], [3, 2, 1, 0]])
        log_prob = self.build(parameters).log_prob(orders)
        assert log_prob[0] == -torch.inf
        log_prob[1].backward()
        assert (parameters["scores"].grad[0] == 0).all()
        assert parameters["scores"].grad.isfinite().all()

    def test_divergence_equals_the_twin(self):
        ours, theirs = (
            [self.leaves(self.parameters(self.sizes, seeded(seed))) for seed in (35, 36)] for _ in range(2)
        )
        mixture = torch.randn(len(self.sizes), dtype=torch.float64, generator=seeded(37))
        fast = kl_divergence(*map(self.build, ours))
        slow = self.twin(theirs[0]).kl_divergence(self.twin(theirs[1]))
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-11)
        fast.backward(mixture)
        slow.backward(mixture)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine["scores"].grad, other["scores"].grad, rtol=1e-8, atol=1e-10)

    def test_divergence_from_itself_is_zero(self):
        distribution = self.build(self.parameters(self.sizes, seeded(38)))
        zeros = torch.zeros(len(self.sizes), dtype=torch.float64)
        torch.testing.assert_close(kl_divergence(distribution, distribution), zeros, atol=1e-10, rtol=0)

    def test_derivations_equal_the_twin(self):
        parameters = self.parameters(self.sizes, seeded(39))
        distribution, twin = self.build(parameters), self.twin(parameters)
        for verb in ("best_derivation", "greedy_derivation"):
            for ours, theirs in zip(getattr(distribution, verb)(), getattr(twin, verb)(), strict=True):
                assert splits_of(ours.tree) == theirs.tree.splits
                assert ours.order == theirs.order
                assert ours.log_prob == pytest.approx(theirs.log_prob)

    @pytest.mark.parametrize("number", [1, 7, 500])
    def test_top_derivations_equal_the_twin(self, number):
        parameters = self.parameters([1, 3, 5, 4], seeded(41))
        ours = self.build(parameters).top_derivations(number)
        theirs = self.twin(parameters).top_derivations(number)
        for found, expected in zip(ours, theirs, strict=True):
            assert len(found) == len(expected)
            assert [d.log_prob for d in found] == pytest.approx([d.log_prob for d in expected])
            assert [splits_of(d.tree) for d in found] == [d.tree.splits for d in expected]
            assert [d.order for d in found] == [d.order for d in expected]

    def test_top_derivations_with_ties_are_all_different(self):
        ranked = SeparablePermutation(
            torch.zeros(1, split_count(4), 2), normal_form=self.normal_form
        ).top_derivations(100)[0]
        number = separable_count(4) if self.normal_form else derivation_count(4)
        assert len({splits_of(derivation.tree) for derivation in ranked}) == number == len(ranked)

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

    def test_impossible_emissions(self):
        parameters = self.parameters(self.sizes, seeded(43))
        emissions = parameters["emissions"].clone()
        blocked = torch.rand(emissions.shape, generator=seeded(44)) < 0.25
        blocked &= ~torch.eye(6, dtype=torch.bool)  # one order always remains
        parameters["emissions"] = emissions.masked_fill(blocked, -torch.inf)
        results = []
        for make in (self.build, self.twin):
            leaves = self.leaves(parameters)
            value = make(leaves).log_likelihood(leaves["emissions"])
            value.sum().backward()
            results.append([value, leaves["scores"].grad, leaves["emissions"].grad])
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

    def test_large_emissions(self):
        parameters = self.parameters(self.sizes, seeded(46))
        parameters["emissions"] = parameters["emissions"] * 1e6
        ours = self.values(self.build(parameters), parameters)["log_likelihood"]
        torch.testing.assert_close(ours, self.twin(parameters).log_likelihood(parameters["emissions"]))
        for name, gradient in self.gradients(self.build, parameters).items():
            assert gradient.isfinite().all(), name

    # ---------------------------------------------------------------- relaxed samples
    def test_hard_relaxed_samples_are_exact_samples(self):
        parameters = self.parameters([3], seeded(47))
        repeated = {name: t.expand(20_000, *t.shape[1:]) for name, t in parameters.items()}
        matrices = self.build(repeated).relaxed_sample(0.8, hard=True, generator=seeded(48))
        assert ((matrices == 0) | (matrices == 1)).all()
        drawn = Counter(map(tuple, matrices.argmax(-1).tolist()))
        assert_frequencies(drawn, self.outcomes(self.twin(parameters), 0))

    def test_soft_relaxed_samples_are_doubly_stochastic(self):
        distribution = self.build(self.parameters(self.sizes, seeded(49)))
        for temperature in (0.2, 1.0, 5.0):
            matrix = distribution.relaxed_sample(temperature, hard=False, generator=seeded(50))
            ones = torch.ones(len(self.sizes), 6, dtype=torch.float64)
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
        parameters = self.leaves(self.parameters([4, 3], seeded(54)))

        def sample(scores):
            distribution = self.build(parameters | {"scores": scores})
            return distribution.relaxed_sample(0.9, hard=False, generator=seeded(55))

        assert torch.autograd.gradcheck(sample, (parameters["scores"],))

    def test_hard_relaxed_samples_pass_gradients(self):
        parameters = self.leaves(self.parameters([5, 3], seeded(56)))
        matrix = self.build(parameters).relaxed_sample(1.0, hard=True, generator=seeded(57))
        weights = torch.randn(matrix.shape, dtype=torch.float64, generator=seeded(58))
        (matrix * weights).sum().backward()
        gradient = parameters["scores"].grad
        assert gradient.isfinite().all()
        assert gradient[0].abs().sum() > 0
        # Adding a number to all rules of the root changes nothing.
        root = [place for (start, _, end), place in packed_splits(5).items() if (start, end) == (0, 5)]
        assert gradient[0, root].sum() == pytest.approx(0.0, abs=1e-12)
        assert (gradient[1][torch.tensor([end > 3 for _, _, end in packed_splits(5)])] == 0).all()

    def test_relaxed_samples_stay_finite(self):
        for scale, temperature in ((1e6, 0.1), (1.0, 1e-6)):
            parameters = self.leaves(self.parameters(self.sizes, seeded(59), scale))
            matrix = self.build(parameters).relaxed_sample(temperature, generator=seeded(60))
            matrix.square().sum().backward()
            assert matrix.isfinite().all()
            assert parameters["scores"].grad.isfinite().all()


class TestSeparablePermutation(SeparableContract):
    pass


class TestSeparablePermutationInNormalForm(SeparableContract):
    normal_form = True

    def test_the_best_derivation_is_the_most_probable_order(self):
        distribution = self.build(self.parameters(self.sizes, seeded(61)))
        found = distribution.most_probable_order()
        assert (found.gap == 0).all()
        for derivation, order, log_prob in zip(
            distribution.best_derivation(), found.order.tolist(), found.log_prob.tolist(), strict=True
        ):
            assert list(derivation.order) == order[: len(derivation.order)]
            assert derivation.log_prob == pytest.approx(log_prob)
