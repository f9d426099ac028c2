"""What every distribution must satisfy. A new structure inherits `Contract` and fills the blanks at its top.

The central blank is `values`: one function that asks a distribution, or its twin (which has the same
methods), everything that has a value and a gradient. Most tests below compare two such dictionaries.
"""

from abc import ABC, abstractmethod
from collections import Counter
from math import log

import pytest
import torch
from torch import Tensor

Parameters = dict[str, Tensor]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Contract(ABC):
    # ---------------------------------------------------------------- blanks
    sizes: list  # sizes of the sentences of a mixed batch, the smallest possible and the largest among them
    small: object  # one size whose outcomes can be counted in a sample
    differentiable: tuple[str, ...]  # the names of the float parameters

    @abstractmethod
    def parameters(self, sizes, generator, scale=1.0) -> Parameters:
        """Random float64 parameters of a padded batch; a large `scale` makes them extreme."""

    @abstractmethod
    def alone(self, parameters, sentence, size) -> Parameters:
        """The parameters of one sentence, without padding."""

    @abstractmethod
    def padding(self, parameters) -> dict[str, Tensor]:
        """For every float parameter a mask of what belongs to no sentence."""

    @abstractmethod
    def build(self, parameters):
        """The distribution."""

    @abstractmethod
    def twin(self, parameters):
        """The same by enumeration."""

    @abstractmethod
    def values(self, distribution, parameters) -> dict[str, Tensor]:
        """Everything that has a value and a gradient."""

    @abstractmethod
    def marginals(self, distribution) -> list[Tensor]:
        """What must lie between zero and one."""

    @abstractmethod
    def call_methods(self, distribution, parameters) -> None:
        """Call every method once, those without gradient too."""

    @abstractmethod
    def count(self, size) -> tuple[Tensor, int]:
        """The log of the number of outcomes as the distribution sees it, and that number in closed form."""

    @abstractmethod
    def outcomes(self, twin, sentence) -> dict[tuple[int, ...], float]:
        """The probability of everything `sample` can return for a sentence, padding included."""

    # ---------------------------------------------------------------- helpers
    def cast(self, parameters, dtype):
        return {name: t.to(dtype) if t.is_floating_point() else t for name, t in parameters.items()}

    def leaves(self, parameters):
        """A copy whose float parameters ask for gradients."""
        return {
            name: t.detach().clone().requires_grad_() if name in self.differentiable else t
            for name, t in parameters.items()
        }

    def gradients(self, make, parameters):
        """For every value the gradients of a fixed random mixture of its entries."""
        leaves = self.leaves(parameters)
        found = {}
        for name, value in self.values(make(leaves), leaves).items():
            mixture = torch.randn(value.shape, dtype=torch.float64, generator=seeded(7)).to(value.dtype)
            wanted = [leaves[leaf] for leaf in self.differentiable]
            if value.requires_grad:
                gradients = torch.autograd.grad(
                    value, wanted, mixture, retain_graph=True, allow_unused=True, materialize_grads=True
                )
            else:  # for one token nothing depends on the scores
                gradients = tuple(map(torch.zeros_like, wanted))
            for leaf, gradient in zip(self.differentiable, gradients, strict=True):
                found[f"{name} by {leaf}"] = gradient
        return found

    def assert_same(self, ours, theirs, **tolerance):
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(
                ours[name], theirs[name], msg=lambda m, name=name: f"{name}: {m}", **tolerance
            )

    @pytest.fixture(autouse=True)
    def _on_both_paths(self, backend):
        self.backend = backend

    # ---------------------------------------------------------------- the contract
    def test_counts_in_closed_form(self):
        for size in self.sizes:
            found, number = self.count(size)
            torch.testing.assert_close(found, torch.tensor([log(number)], dtype=found.dtype))

    def test_values_equal_the_twin(self):
        parameters = self.parameters(self.sizes, seeded())
        ours = self.values(self.build(parameters), parameters)
        self.assert_same(ours, self.values(self.twin(parameters), parameters), rtol=1e-10, atol=1e-11)

    def test_gradients_equal_the_twin(self):
        parameters = self.parameters(self.sizes, seeded(1))
        ours = self.gradients(self.build, parameters)
        self.assert_same(ours, self.gradients(self.twin, parameters), rtol=1e-9, atol=1e-10)

    def test_float32_values_and_gradients(self):
        exact = self.parameters(self.sizes, seeded(2))
        rounded = self.cast(exact, torch.float32)
        ours = self.values(self.build(rounded), rounded)
        assert {value.dtype for value in ours.values()} == {torch.float32}
        ours |= self.gradients(self.build, rounded)
        theirs = self.values(self.twin(exact), exact) | self.gradients(self.twin, exact)
        self.assert_same(ours, theirs, rtol=2e-4, atol=2e-5, check_dtype=False)

    def test_each_size_in_a_batch_of_its_own(self):
        for size in self.sizes:
            parameters = self.parameters([size, size], seeded(3))
            ours = self.values(self.build(parameters), parameters) | self.gradients(self.build, parameters)
            twin = self.values(self.twin(parameters), parameters) | self.gradients(self.twin, parameters)
            self.assert_same(ours, twin, rtol=1e-9, atol=1e-10)

    def test_a_sentence_alone_is_the_sentence_in_a_batch(self):
        parameters = self.parameters(self.sizes, seeded(4))
        batch = self.values(self.build(parameters), parameters)
        for sentence, size in enumerate(self.sizes):
            single = self.alone(parameters, sentence, size)
            for name, value in self.values(self.build(single), single).items():
                if value.shape == (1,):
                    torch.testing.assert_close(value[0], batch[name][sentence], rtol=1e-11, atol=1e-12)

    def test_what_stands_in_the_padding_changes_nothing(self):
        parameters = self.parameters(self.sizes, seeded(5))
        masks = self.padding(parameters)
        assert any(mask.any() for mask in masks.values())
        other = {
            name: torch.where(masks[name], torch.full_like(t, 321.0), t) if name in masks else t
            for name, t in parameters.items()
        }
        exactly = {"rtol": 0.0, "atol": 0.0}
        ours = self.values(self.build(parameters), parameters)
        self.assert_same(ours, self.values(self.build(other), other), **exactly)
        before, after = self.gradients(self.build, parameters), self.gradients(self.build, other)
        self.assert_same(before, after, **exactly)
        for name, gradient in before.items():
            assert (gradient[masks[name.split(" by ")[1]]] == 0).all(), name

    def test_gradcheck(self):
        parameters = self.leaves(self.parameters([self.small, self.sizes[0]], seeded(6)))
        floats = tuple(parameters[name] for name in self.differentiable)

        def everything(*tensors):
            changed = parameters | dict(zip(self.differentiable, tensors, strict=True))
            return tuple(self.values(self.build(changed), changed).values())

        assert torch.autograd.gradcheck(everything, floats)

    def test_marginals_are_probabilities(self):
        for scale in (1.0, 30.0):
            distribution = self.build(self.parameters(self.sizes, seeded(8), scale))
            for marginal in self.marginals(distribution):
                assert (marginal >= 0).all()
                assert (marginal <= 1 + 1e-12).all()

    @pytest.mark.parametrize(("dtype", "scale"), [(torch.float64, 1e6), (torch.float32, 1e4)])
    def test_extreme_scores_stay_finite(self, dtype, scale):
        parameters = self.cast(self.parameters(self.sizes, seeded(9), scale), dtype)
        found = self.values(self.build(parameters), parameters) | self.gradients(self.build, parameters)
        for name, value in found.items():
            assert value.isfinite().all(), name
        for marginal in self.marginals(self.build(parameters)):
            assert ((marginal >= 0) & (marginal <= 1 + 1e-5)).all()

    def test_extreme_scores_equal_the_twin(self):
        parameters = self.parameters(self.sizes, seeded(9), 1e6)
        ours = self.values(self.build(parameters), parameters)
        self.assert_same(ours, self.values(self.twin(parameters), parameters), rtol=1e-9, atol=1e-6)

    def test_the_callers_tensors_are_left_alone(self):
        parameters = self.parameters(self.sizes, seeded(10))
        copies = {name: tensor.clone() for name, tensor in parameters.items()}
        versions = {name: tensor._version for name, tensor in parameters.items()}
        self.call_methods(self.build(parameters), parameters)
        for name, tensor in parameters.items():
            assert torch.equal(tensor, copies[name]), name
            assert tensor._version == versions[name], name
            assert not tensor.requires_grad, name

    def test_no_method_fills_the_callers_gradients(self):
        parameters = self.leaves(self.parameters(self.sizes, seeded(11)))
        self.call_methods(self.build(parameters), parameters)
        assert all(parameters[name].grad is None for name in self.differentiable)

    @pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
    def test_values_need_no_gradient_mode(self, context):
        parameters = self.parameters(self.sizes, seeded(13))
        expected = self.values(self.build(parameters), parameters)
        with context():
            found = self.values(self.build(parameters), parameters)
        self.assert_same(found, expected)

    def test_strides_do_not_matter(self):
        parameters = self.parameters(self.sizes, seeded(14))
        strided = {
            name: t.transpose(0, -1).contiguous().transpose(0, -1) if name in self.differentiable else t
            for name, t in parameters.items()
        }
        assert any(not strided[name].is_contiguous() for name in self.differentiable)
        ours = self.values(self.build(strided), strided) | self.gradients(self.build, strided)
        theirs = self.values(self.build(parameters), parameters) | self.gradients(self.build, parameters)
        self.assert_same(ours, theirs)

    def test_sampling_frequencies(self):
        parameters = self.parameters([self.small, self.sizes[0], self.small], seeded(15))
        number = 20_000
        samples = self.build(parameters).sample((number,), generator=seeded(16))
        for sentence in range(3):
            expected = self.outcomes(self.twin(parameters), sentence)
            drawn = Counter(map(tuple, samples[:, sentence].flatten(1).tolist()))
            assert_frequencies(drawn, expected)

    def test_samples_have_shape_and_follow_the_generator(self):
        parameters = self.parameters(self.sizes, seeded(17))
        distribution = self.build(parameters)
        single = distribution.sample()
        assert single.dtype == torch.int64
        state = torch.get_rng_state()
        first = distribution.sample((2, 3), generator=seeded(18))
        assert first.shape == (2, 3, *single.shape)
        assert torch.equal(first, distribution.sample((2, 3), generator=seeded(18)))
        assert not torch.equal(first, distribution.sample((2, 3), generator=seeded(19)))
        assert torch.equal(state, torch.get_rng_state())
        assert distribution.sample((0,)).shape == (0, *single.shape)

    def test_samples_follow_the_global_seed(self):
        distribution = self.build(self.parameters(self.sizes, seeded(20)))
        draws = []
        for _ in range(2):
            torch.manual_seed(5)
            draws.append(distribution.sample((4,)))
        assert torch.equal(*draws)


def assert_frequencies(drawn, expected):
    """Pearson's statistic within five standard deviations of its mean, rare outcomes pooled."""
    assert set(drawn) <= set(expected)
    number = sum(drawn.values())
    cells, rare_drawn, rare_expected = [], 0, 0.0
    for outcome, probability in expected.items():
        if number * probability >= 8:
            cells.append((drawn[outcome], number * probability))
        else:
            rare_drawn, rare_expected = rare_drawn + drawn[outcome], rare_expected + number * probability
    assert rare_drawn <= rare_expected + 5 * max(1.0, rare_expected) ** 0.5
    freedom = max(1, len(cells) - 1)
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in cells)
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5
