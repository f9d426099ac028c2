"""Single spans and trees of distributions, against enumeration; and what torch.distributions expects of them."""

from collections import Counter
from math import exp, inf

import pytest
import torch

from permalign import kernels
from permalign.structures import (
    LabelledPermutation,
    LabelledSynchronousPermutation,
    SeparablePermutation,
    SynchronousPermutation,
)
from permalign.structures.splits import span_options

LENGTH = 5


def random_distribution(normal_form, length=LENGTH, seed=0):
    generator = torch.Generator().manual_seed(seed)
    splits = (length**3 - length) // 6
    scores = torch.randn(1, splits, 2, dtype=torch.float64, generator=generator)
    return SeparablePermutation(scores, normal_form=normal_form)


def everything(distribution):
    (all_of_them,) = distribution.top_derivations(10_000)
    return all_of_them


@pytest.mark.parametrize("normal_form", [False, True])
def test_the_tree_of_an_order_is_its_best(normal_form):
    distribution = random_distribution(normal_form)
    best = {}
    for derivation in everything(distribution):
        best.setdefault(derivation.order, derivation)
    for order, expected in best.items():
        (found,) = distribution.derivation_of_order(torch.tensor([order]))
        assert found.tree == expected.tree
        assert found.log_prob == pytest.approx(expected.log_prob)


def test_an_order_that_is_not_separable_has_no_tree():
    distribution = random_distribution(False, length=4)
    assert distribution.derivation_of_order(torch.tensor([[1, 3, 0, 2]])) == [None]


@pytest.mark.parametrize("normal_form", [False, True])
def test_sampled_trees_are_as_frequent_as_they_are_probable(normal_form):
    distribution = random_distribution(normal_form, length=3)
    (drawn,) = distribution.sample_derivations(20_000, torch.Generator().manual_seed(1))
    counts = Counter(one.tree for one in drawn)
    known = everything(distribution)
    assert set(counts) <= {one.tree for one in known}
    for one in known:
        assert counts[one.tree] / 20_000 == pytest.approx(exp(one.log_prob), abs=0.015)
    assert all(
        one.log_prob == pytest.approx(next(k.log_prob for k in known if k.tree == one.tree))
        for one in drawn[:50]
    )


@pytest.mark.parametrize("normal_form", [False, True])
def test_a_derivation_is_the_product_of_its_options(normal_form):
    distribution = random_distribution(normal_form)
    rules = distribution.rule_probabilities()[0]
    for derivation in everything(distribution)[:20]:
        product, waiting = 1.0, [(derivation.tree, None)]
        while waiting:
            node, forbidden = waiting.pop()
            if node.children:
                left, right = node.children
                options = span_options(rules, LENGTH, node.start, node.end, forbidden)
                product *= float(options[left.end - node.start - 1, "SI".index(node.rule)])
                waiting += [(left, node.rule if normal_form else None), (right, None)]
        assert product == pytest.approx(exp(derivation.log_prob))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("normal_form", [False, True])
def test_posterior_is_that_of_enumeration(normal_form, seed):
    distribution = random_distribution(normal_form)
    emissions = torch.randn(
        1, LENGTH, LENGTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    emissions[0, 2, 4] = -inf
    posterior = distribution.tagging_posterior(emissions)
    joint = {
        one.tree: one.log_prob
        + sum(float(emissions[0, token, place]) for place, token in enumerate(one.order))
        for one in everything(distribution)
    }
    total = torch.tensor(list(joint.values()), dtype=torch.float64).logsumexp(0).item()
    best = max(joint, key=joint.__getitem__)
    assert posterior.log_likelihood == pytest.approx(total)
    assert posterior.derivation.tree == best
    assert posterior.derivation.log_prob == pytest.approx(joint[best] - total)
    alignment = torch.zeros(LENGTH, LENGTH, dtype=torch.float64)
    for tree, weight in joint.items():
        for place, token in enumerate(tree.order):
            alignment[token, place] += exp(weight - total)
    assert torch.allclose(posterior.alignment, alignment)
    assert float(posterior.rules.sum()) == pytest.approx(LENGTH - 1)


@pytest.mark.parametrize("backend", ["compiled", "portable"])
def test_one_word_has_a_posterior_too(backend):
    distribution = SeparablePermutation(torch.zeros(1, 0, 2))
    with kernels.backend(backend):
        posterior = distribution.tagging_posterior(torch.tensor([[[-0.5]]]))
    assert posterior.log_likelihood == pytest.approx(-0.5)
    assert posterior.derivation.order == (0,)
    assert posterior.rules.shape == (0, 2)
    assert torch.equal(posterior.alignment, torch.ones(1, 1, dtype=torch.float64))


def test_an_output_nothing_can_write_is_named():
    with pytest.raises(ValueError, match="no derivation"):
        random_distribution(False, length=2).tagging_posterior(torch.full((1, 2, 2), -inf))


def test_a_posterior_is_of_a_single_sentence():
    two = SeparablePermutation(torch.zeros(2, 1, 2))
    with pytest.raises(ValueError, match="2 sentences"):
        two.tagging_posterior(torch.zeros(1, 2, 2))


def test_orders_and_segments_are_summed_together():
    torch.manual_seed(0)
    segments, target_lengths = torch.randn(2, 3, 5, 3).double(), torch.tensor([4, 2])
    splits, lengths = torch.randn(2, 4, 2), torch.tensor([3, 2])
    rules, tokens, root = torch.randn(2, 2, 2, 2), torch.randn(2, 3, 2), torch.randn(2)
    pair = (lengths, target_lengths)
    plain = SeparablePermutation(splits, lengths).with_segments(segments, target_lengths)
    expected = SynchronousPermutation(splits.double(), segments, *pair)
    assert torch.equal(plain.log_likelihood(), expected.log_likelihood())
    labelled = LabelledPermutation(rules, tokens, splits, lengths, root).with_segments(
        segments, target_lengths
    )
    grammar = rules.double(), tokens.double(), segments, splits.double()
    expected = LabelledSynchronousPermutation(*grammar, *pair, root.double())
    assert torch.equal(labelled.log_likelihood(), expected.log_likelihood())


def test_labelled_trees_have_no_phrases():
    labelled = LabelledPermutation(torch.zeros(2, 2, 2, 2), torch.zeros(1, 2, 2))
    with pytest.raises(ValueError, match="phrases have no labels"):
        labelled.with_segments(torch.zeros(1, 3, 2, 2), torch.tensor([1]), phrase_scores=torch.zeros(1, 1))


def test_labelled_trees_have_no_tagging_posterior():
    labelled = LabelledPermutation(torch.zeros(2, 2, 2, 2), torch.zeros(1, 3, 2))
    assert labelled.tagging_posterior(torch.zeros(1, 3, 3)) is None
