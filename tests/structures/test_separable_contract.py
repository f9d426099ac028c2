"""`SeparablePermutation`, plain and in normal form, against the contract and its twin."""

import pytest
import torch
from tests.structures.contract import seeded
from tests.structures.order_contract import OrderContract
from torch.distributions import kl_divergence

from permalign import SeparablePermutation
from permalign.structures.brute_force import EnumeratedPermutation, packed_splits
from permalign.structures.permutations import derivation_count, separable_count


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


class SeparableContract(OrderContract):
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

    def own_values(self, distribution):
        return {"rule_probabilities": distribution.rule_probabilities()}

    def call_own_methods(self, distribution):
        kl_divergence(distribution, distribution)

    def marginals(self, distribution):
        return [*super().marginals(distribution), distribution.rule_probabilities()]

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

    # ---------------------------------------------------------------- what only trees without labels have
    def test_the_rules_of_a_span_sum_to_one(self):
        lengths = [5, 3]
        rules = self.build(self.parameters(lengths, seeded(31))).rule_probabilities()
        for sentence, length in enumerate(lengths):
            totals = {}
            for (start, _, end), place in packed_splits(5).items():
                totals[start, end] = totals.get((start, end), 0) + float(rules[sentence, place].sum())
            for (_, end), total in totals.items():
                assert total == pytest.approx(1.0 if end <= length else 0.0)

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

    def test_large_emissions(self):
        parameters = self.parameters(self.sizes, seeded(46))
        parameters["emissions"] = parameters["emissions"] * 1e6
        ours = self.values(self.build(parameters), parameters)["log_likelihood"]
        torch.testing.assert_close(ours, self.twin(parameters).log_likelihood(parameters["emissions"]))
        for name, gradient in self.gradients(self.build, parameters).items():
            assert gradient.isfinite().all(), name

    # ---------------------------------------------------------------- relaxed samples
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
