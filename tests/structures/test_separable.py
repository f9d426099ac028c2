"""Examples worked by hand, orientation, and facts of the literature about `SeparablePermutation`."""

import pytest
import torch
from tests.structures.contract import seeded
from tests.structures.test_separable_contract import split_count

from permalign import SeparablePermutation, kernels
from permalign.structures import separable
from permalign.structures.brute_force import packed_splits

pytestmark = pytest.mark.usefixtures("backend")

# Weights of rules on three words for which greedy, Viterbi and the most probable order all differ.
WEIGHTS = {
    (0, 1, 2): (1, 3),
    (1, 2, 3): (3, 4),
    (0, 1, 3): (2, 1),
    (0, 2, 3): (3, 2),
}

WORDS = ["the", "girl", "saw", "the", "hedgehog"]
PAPERS_TREE = {(0, 3, 5): "S", (0, 2, 3): "I", (0, 1, 2): "S", (3, 4, 5): "S"}


def three_words(normal_form=False):
    weights = torch.tensor([WEIGHTS[split] for split in packed_splits(3)], dtype=torch.float64)
    return SeparablePermutation(weights.log()[None], normal_form=normal_form)


def hedgehog(normal_form=False):
    scores = torch.zeros(1, split_count(5), 2, dtype=torch.float64)
    for split, place in packed_splits(5).items():
        if split in PAPERS_TREE:
            scores[0, place, "SI".index(PAPERS_TREE[split])] = 100
    return SeparablePermutation(scores, normal_form=normal_form)


class TestThreeWords:
    def test_partition(self):
        torch.testing.assert_close(
            three_words().log_partition().exp(), torch.tensor([41.0], dtype=torch.float64)
        )

    def test_greedy(self):
        (found,) = three_words().greedy_derivation()
        assert found.order == (0, 2, 1)
        assert torch.tensor(found.log_prob).exp() == pytest.approx(8 / 41)

    def test_viterbi(self):
        (found,) = three_words().best_derivation()
        assert found.order == (1, 0, 2)
        assert torch.tensor(found.log_prob).exp() == pytest.approx(9 / 41)

    def test_most_probable_order(self):
        found = three_words().most_probable_order()
        assert found.order.tolist() == [[2, 1, 0]]
        assert found.log_prob.exp().item() == pytest.approx(10 / 41)
        assert found.gap.tolist() == [0.0]
        (tree,) = three_words().greedy_derivation()
        assert three_words().log_prob(torch.tensor([tree.order])).exp().item() == pytest.approx(8 / 41)


class TestHedgehog:
    """ "the girl saw the hedgehog" with the paper's tree becomes "saw the girl the hedgehog"."""

    order = (2, 0, 1, 3, 4)

    def test_expected_matrix_reorders_states_from_the_left(self):
        states = torch.arange(5.0, dtype=torch.float64)[:, None]
        reordered = hedgehog().expected_matrix()[0] @ states
        sentence = " ".join(WORDS[round(float(state))] for state in reordered)
        assert sentence == "saw the girl the hedgehog"

    def test_every_way_to_an_order_agrees(self):
        distribution = hedgehog()
        assert distribution.greedy_derivation()[0].order == self.order
        assert distribution.best_derivation()[0].order == self.order
        assert tuple(distribution.most_probable_order().order[0].tolist()) == self.order
        assert tuple(distribution.sample(generator=seeded())[0].tolist()) == self.order
        relaxed = distribution.relaxed_sample(1.0, generator=seeded())[0]
        assert tuple(relaxed.argmax(-1).tolist()) == self.order
        assert distribution.log_prob(torch.tensor([self.order])).item() == pytest.approx(0, abs=1e-9)

    def test_exact_likelihood_reads_emissions_by_token_and_position(self):
        emissions = torch.full((1, 5, 5), -50.0, dtype=torch.float64)
        for position, token in enumerate(self.order):
            emissions[0, token, position] = 0
        assert hedgehog().log_likelihood(emissions).item() == pytest.approx(0, abs=1e-9)
        assert hedgehog().log_likelihood(emissions.mT).item() < -50

    def test_drawing_shows_every_word_and_rule(self):
        drawn = hedgehog().best_derivation()[0].draw(WORDS)
        assert "hedgehog" in drawn
        assert "saw" in drawn
        assert "I" in drawn
        assert drawn != hedgehog().best_derivation()[0].draw()

    def test_the_tree(self):
        tree = hedgehog().best_derivation()[0].tree
        assert (tree.start, tree.end, tree.rule) == (0, 5, "S")
        verb_phrase, object_ = tree.children
        assert (verb_phrase.rule, object_.rule) == ("I", "S")
        leaf = verb_phrase.children[1]
        assert (leaf.start, leaf.end, leaf.rule, leaf.children) == (2, 3, None, ())


@pytest.mark.parametrize("normal_form", [False, True])
@pytest.mark.parametrize("order", [(1, 3, 0, 2), (2, 0, 3, 1), (0, 2, 4, 1, 3), (3, 1, 4, 2, 0)])
def test_orders_that_contain_2413_or_3142_are_impossible(order, normal_form):
    length = len(order)
    scores = torch.randn(1, split_count(length), 2, generator=seeded())
    distribution = SeparablePermutation(scores, normal_form=normal_form)
    assert distribution.log_prob(torch.tensor([order])).item() == -torch.inf


@pytest.mark.parametrize(("length", "rate"), [(3, 0.05), (4, 0.15), (5, 0.28), (6, 0.40)])
def test_how_often_greedy_misses_the_best_derivation(length, rate):
    number = 600
    distribution = SeparablePermutation(
        torch.randn(number, split_count(length), 2, dtype=torch.float64, generator=seeded(length))
    )
    pairs = zip(distribution.greedy_derivation(), distribution.best_derivation(), strict=True)
    missed = sum(greedy.log_prob < best.log_prob - 1e-9 for greedy, best in pairs) / number
    assert missed == pytest.approx(rate, abs=4 * (rate * (1 - rate) / number) ** 0.5 + 0.005)


class TestFromDense:
    def test_equals_packed(self):
        dense = torch.randn(2, 5, 5, 5, 2, dtype=torch.float64, generator=seeded())
        packed = torch.stack([dense[:, i, j, k] for i, j, k in packed_splits(4)], 1)
        lengths = torch.tensor([4, 3])
        ours = SeparablePermutation.from_dense(dense, lengths)
        theirs = SeparablePermutation(packed, lengths)
        assert torch.equal(ours.log_partition(), theirs.log_partition())
        assert torch.equal(ours.expected_matrix(), theirs.expected_matrix())

    def test_gradients_reach_the_splits_and_only_them(self):
        dense = torch.randn(1, 4, 4, 4, 2, dtype=torch.float64, generator=seeded(), requires_grad=True)
        SeparablePermutation.from_dense(dense).log_partition().sum().backward()
        used = torch.zeros_like(dense, dtype=torch.bool)
        for i, j, k in packed_splits(3):
            used[:, i, j, k] = True
        assert (dense.grad[used] > 0).all()
        assert (dense.grad[~used] == 0).all()

    def test_one_word(self):
        distribution = SeparablePermutation.from_dense(torch.zeros(3, 2, 2, 2, 2))
        assert distribution.log_partition().tolist() == [0, 0, 0]


class TestOneWord:
    """No splits at all: the length is one, and everything has its one answer."""

    @pytest.mark.parametrize("normal_form", [False, True])
    def test_every_method(self, normal_form):
        distribution = SeparablePermutation(torch.zeros(2, 0, 2), normal_form=normal_form)
        assert distribution.event_shape == (1,)
        assert distribution.log_partition().tolist() == [0, 0]
        assert distribution.expected_matrix().tolist() == [[[1]], [[1]]]
        assert distribution.rule_probabilities().shape == (2, 0, 2)
        assert distribution.rule_marginals().shape == (2, 0, 2)
        assert distribution.sample((3,)).tolist() == [[[0], [0]]] * 3
        assert distribution.relaxed_sample(1.0).tolist() == [[[1]], [[1]]]
        assert distribution.log_prob(torch.zeros(2, 1, dtype=torch.int64)).tolist() == [0, 0]
        assert distribution.greedy_derivation()[1].order == (0,)
        assert distribution.best_derivation()[0].log_prob == 0
        assert [d.order for d in distribution.top_derivations(5)[0]] == [(0,)]
        assert distribution.most_probable_order().order.tolist() == [[0], [0]]
        assert distribution.log_likelihood(torch.full((2, 1, 1), -1.5)).tolist() == [-1.5, -1.5]
        assert distribution.entropy().tolist() == [0, 0]
        assert torch.distributions.kl_divergence(distribution, distribution).tolist() == [0, 0]
        assert distribution.enumerate_support().tolist() == [[[0], [0]]]
        assert "word" in distribution.best_derivation()[0].draw(["word"])


@pytest.mark.parametrize("normal_form", [False, True])
def test_both_backends_agree_on_longer_sentences(normal_form):
    lengths = torch.tensor([20, 1, 13])
    start = torch.randn(3, split_count(20), 2, dtype=torch.float64, generator=seeded())
    emissions = torch.randn(3, 20, 20, dtype=torch.float64, generator=seeded(1)).log_softmax(-1)
    results = []
    for path in ("portable", "compiled"):
        scores = start.clone().requires_grad_()
        with kernels.backend(path):
            distribution = SeparablePermutation(scores, lengths, normal_form=normal_form)
            matrix = distribution.expected_matrix()
            likelihood, entropy = distribution.log_likelihood(emissions), distribution.entropy()
            (matrix.square().sum() + likelihood.sum() + entropy.sum()).backward()
        results.append([matrix, likelihood, entropy, scores.grad])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)


def test_the_certified_gap_holds_when_the_search_is_hard():
    """Nearly uniform scores have no clear winner, so the search may stop early but must say how far it is."""
    scores = 0.01 * torch.randn(2, split_count(6), 2, dtype=torch.float64, generator=seeded())
    distribution = SeparablePermutation(scores)
    found = distribution.most_probable_order()
    best = distribution.log_prob(distribution.enumerate_support()).exp().amax(0)
    assert (best <= found.log_prob.exp() + found.gap + 1e-12).all()
    torch.testing.assert_close(found.log_prob, distribution.log_prob(found.order))


def test_no_samples_have_no_probabilities():
    distribution = SeparablePermutation(torch.zeros(2, 4, 2))
    assert distribution.log_prob(distribution.sample((0,))).shape == (0, 2)


@pytest.mark.parametrize("shape", [3, (-1,), (1.5,)])
def test_shapes_of_samples_are_tuples_of_whole_numbers(shape, unchecked):
    with pytest.raises(ValueError, match="sample_shape"):
        SeparablePermutation(torch.zeros(2, 4, 2)).sample(shape)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_temperatures_are_positive_and_finite(temperature):
    with pytest.raises(ValueError, match="temperature"):
        SeparablePermutation(torch.zeros(2, 4, 2)).relaxed_sample(temperature)


@pytest.mark.parametrize("max_loss", [0.3, 1e-3, 1e-6])
@pytest.mark.parametrize("normal_form", [False, True])
def test_the_approximate_matrix_loses_no_more_than_it_may(max_loss, normal_form):
    scores = 5 * torch.randn(3, 56, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    distribution = SeparablePermutation(scores, torch.tensor([7, 4, 1]), normal_form)
    lost = distribution.expected_matrix() - distribution.approximate_matrix(max_loss)
    assert float(lost.min()) >= -1e-6
    assert float(lost.max()) <= max_loss + 1e-6


@pytest.mark.parametrize("normal_form", [False, True])
def test_orders_are_those_of_derivations(normal_form):
    scores = torch.randn(3, 56, 2, generator=torch.Generator().manual_seed(0))
    distribution = SeparablePermutation(scores, torch.tensor([7, 4, 1]), normal_form)
    for orders, derivations in (
        (distribution.greedy_order(), distribution.greedy_derivation()),
        (distribution.best_order(), distribution.best_derivation()),
    ):
        for order, derivation in zip(orders.tolist(), derivations, strict=True):
            length = len(derivation.order)
            assert tuple(order[:length]) == derivation.order
            assert order[length:] == list(range(length, 7))


def test_the_approximate_matrix_is_the_same_in_blocks(monkeypatch):
    splits = torch.randn(3, 56, 2, generator=seeded())
    whole = SeparablePermutation(splits, torch.tensor([7, 1, 4])).approximate_matrix(0.01)
    monkeypatch.setattr(separable, "BLOCK", 5)
    in_blocks = SeparablePermutation(splits, torch.tensor([7, 1, 4])).approximate_matrix(0.01)
    assert torch.equal(whole, in_blocks)


def test_constant_sums_are_computed_once_and_gradients_flow_through_others():
    constant = SeparablePermutation(torch.randn(2, 10, 2, generator=seeded()))
    assert constant.double() is constant.double()
    assert constant.rule_probabilities() is constant.rule_probabilities()
    learned = SeparablePermutation(constant.scores.clone().requires_grad_())
    assert learned.double() is not learned.double()
    for _ in range(2):
        (gradient,) = torch.autograd.grad(learned.entropy().sum(), learned.scores)
        assert gradient.abs().sum() > 0
