"""Single spans, trees of orders, sampled trees and posteriors, against enumeration."""

from collections import Counter
from math import exp, inf

import pytest
import torch

from permalign.structures import SeparablePermutation
from permalign.structures.inspection import derivation_of_order, sample_derivations, span_options
from permalign.structures.tagging_posterior import tagging_posterior

WORDS = 5


def random_distribution(normal_form, words=WORDS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    splits = (words**3 - words) // 6
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
        found = derivation_of_order(distribution, order)
        assert found.tree == expected.tree
        assert found.log_prob == pytest.approx(expected.log_prob)


def test_an_order_that_is_not_separable_has_no_tree():
    assert derivation_of_order(random_distribution(False, words=4), [1, 3, 0, 2]) is None


@pytest.mark.parametrize("normal_form", [False, True])
def test_sampled_trees_are_as_frequent_as_they_are_probable(normal_form):
    distribution = random_distribution(normal_form, words=3)
    drawn = sample_derivations(distribution, 20_000, torch.Generator().manual_seed(1))
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
                options = span_options(rules, WORDS, node.start, node.end, forbidden)
                product *= float(options[left.end - node.start - 1, "SI".index(node.rule)])
                waiting += [(left, node.rule if normal_form else None), (right, None)]
        assert product == pytest.approx(exp(derivation.log_prob))


@pytest.mark.parametrize("normal_form", [False, True])
def test_posterior_is_that_of_enumeration(normal_form):
    distribution = random_distribution(normal_form)
    emissions = torch.randn(1, WORDS, WORDS, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    emissions[0, 2, 4] = -inf
    posterior = tagging_posterior(distribution, emissions)
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
    alignment = torch.zeros(WORDS, WORDS, dtype=torch.float64)
    for tree, weight in joint.items():
        for place, token in enumerate(tree.order):
            alignment[token, place] += exp(weight - total)
    assert torch.allclose(posterior.alignment, alignment)
    assert float(posterior.rules.sum()) == pytest.approx(WORDS - 1)


def test_one_word_has_a_posterior_too():
    distribution = SeparablePermutation(torch.zeros(1, 0, 2))
    posterior = tagging_posterior(distribution, torch.tensor([[[-0.5]]]))
    assert posterior.log_likelihood == pytest.approx(-0.5)
    assert posterior.derivation.order == (0,)


def test_an_output_nothing_can_write_is_named():
    with pytest.raises(ValueError, match="no derivation"):
        tagging_posterior(random_distribution(False, words=2), torch.full((1, 2, 2), -inf))


def test_only_a_single_sentence_is_looked_into():
    two = SeparablePermutation(torch.zeros(2, 1, 2))
    with pytest.raises(ValueError, match="2 sentences"):
        derivation_of_order(two, [0, 1])
    with pytest.raises(ValueError, match="2 sentences"):
        sample_derivations(two, 3)
