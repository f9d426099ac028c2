"""Search over several orders: candidates are ranked by their likelihood over all orders, and explained by one."""

from itertools import permutations, product

import pytest
import torch
from tests.models.small import LETTERS, REORDERERS, make

from permalign.heads.copying import CopyGate
from permalign.structures import Transduction

SOURCES = [("a", "b", "c"), ("d", "a"), ("f",)]


def all_outputs(longest):
    letters = LETTERS.upper()
    return [output for size in range(longest + 1) for output in product(letters, repeat=size)]


@pytest.mark.parametrize("reorderer", ["exact", "labelled exact"])
def test_a_wide_beam_finds_the_most_probable_output(reorderer):
    model = make(reorderer, "segments", seed=4, max_segment_length=1)
    with torch.no_grad():  # sure enough of its words that outputs differ
        model.head.word_scores.of_cells.weight.mul_(6.0)
    for source in SOURCES:
        outputs = all_outputs(len(source))
        scores = torch.tensor(model.score([source] * len(outputs), outputs))
        (prediction,) = model.predict([source], beam=40)
        assert prediction.score == pytest.approx(scores.max().item(), abs=1e-4)
        (narrow,) = model.predict([source])
        assert narrow.score <= prediction.score + 1e-5


@pytest.mark.parametrize("reorderer", ["exact", "labelled exact"])
def test_a_wide_beam_finds_the_most_probable_tagging(reorderer):
    model = make(reorderer, "tagging", seed=4)
    for source in SOURCES:
        outputs = list(product(LETTERS.upper(), repeat=len(source)))
        scores = torch.tensor(model.score([source] * len(outputs), outputs))
        (prediction,) = model.predict([source], beam=40)
        assert prediction.score == pytest.approx(scores.max().item(), abs=1e-4)


@pytest.mark.parametrize("reorderer", ["exact", "labelled exact"])
def test_explanations_are_derivations_of_the_output(reorderer):
    model = make(reorderer, "segments", seed=1)
    for prediction in model.predict(SOURCES, beam=3, n_best=3, explain=True):
        explanation = prediction.explanation
        assert isinstance(explanation.derivation, Transduction)
        assert explanation.derivation.log_prob <= prediction.score + 1e-4
        assert explanation.order == explanation.derivation.tree.order
        assert tuple(segment.source[0] for segment in explanation.segments) == explanation.order
        written = [word for segment in explanation.segments for word in segment.target]
        assert written == list(range(len(prediction.tokens)))
        scores = [prediction.score, *(other.score for other in prediction.alternatives)]
        assert scores == sorted(scores, reverse=True)
        assert len({prediction.tokens, *(other.tokens for other in prediction.alternatives)}) == 3


def test_a_tagging_is_explained_by_the_order_it_was_found_in():
    model = make("exact", "tagging", seed=2)
    for prediction in model.predict(SOURCES, beam=6, explain=True):
        assert prediction.explanation.order == prediction.explanation.derivation.order
        assert len(prediction.explanation.segments) == len(prediction.tokens)


@pytest.fixture
def copying():
    """A model that copies every word, in any order."""
    model = make("exact", "tagging", copy_mechanism=True)
    (gate,) = (module for module in model.modules() if isinstance(module, CopyGate))
    torch.nn.init.constant_(gate.of_cells.bias, -50.0)
    return model


def test_the_head_reads_the_states_of_words_in_the_order_of_a_derivation(copying):
    source, states = torch.tensor([copying.source.encode(["a", "b", "c"])]), torch.randn(1, 3, 5)
    (derivations,) = copying.reorderer.distribution(source, torch.tensor([3])).top_derivations(8)
    for derivation in derivations:
        reordered, lengths = copying.head.leaf_states(states, [derivation])
        assert torch.equal(reordered, states[:, list(derivation.order)])
        assert lengths.tolist() == [3]


def test_every_order_of_words_that_are_copied_is_an_output(copying):
    sources = ["zebra lion gnu", "ape", "emu yak"]
    for source, prediction in zip(sources, copying.predict(sources, beam=8, n_best=6), strict=True):
        orders = {" ".join(order) for order in permutations(source.split())}
        first = [other.text for other in (prediction, *prediction.alternatives)][: len(orders)]
        assert set(first) == orders
        (one,) = copying.predict([source], beam=1)
        assert one.text in orders


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_an_output_is_explained_by_the_order_that_writes_it(copying, order):
    words = ["zebra", "lion", "gnu"]
    output = [words[place] for place in order]
    (prediction,) = copying.predict(
        [words], beam=8, explain=True, constraint=lambda prefix: [*output, "</s>"][len(prefix) :][:1]
    )
    assert prediction.tokens == tuple(output)
    assert prediction.explanation.order == order
    assert prediction.explanation.derivation.order == order


@pytest.mark.parametrize("words", [("zebra", "lion"), ("zebra", "lion", "gnu")])
def test_as_many_derivations_are_tried_as_the_beam_has_places(copying, words):
    source = torch.tensor([copying.source.encode(words)])
    (derivations,) = copying.reorderer.distribution(source, torch.tensor([len(words)])).top_derivations(8)
    for beam in (1, 2, 3):
        orders = {derivation.order for derivation in derivations[:beam]}
        (prediction,) = copying.predict([words], beam=beam, n_best=len(orders))
        found = {prediction.text, *(other.text for other in prediction.alternatives)}
        assert found == {" ".join(words[place] for place in order) for order in orders}, beam


def test_an_expected_order_is_searched_alone(monkeypatch):
    monkeypatch.setitem(REORDERERS, "exact", {**REORDERERS["exact"], "decoding": "marginal"})
    (prediction,) = make("exact", "tagging").predict(["a b c"], beam=3)
    assert len(prediction.tokens) == 3


@pytest.mark.parametrize("head", ["segments", "tagging"])
def test_a_constraint_that_leads_nowhere_leaves_no_output(head):
    (prediction,) = make("exact", head).predict(["a b"], beam=4, constraint=lambda words: ["B"][len(words) :])
    assert (prediction.tokens, prediction.score) == ((), -torch.inf)


def test_outputs_keep_to_a_constraint():
    model = make("exact", "segments")
    allowed = {0: ["B"], 1: ["A", "</s>"], 2: ["</s>"]}
    for prediction in model.predict(SOURCES, beam=4, constraint=lambda words: allowed[len(words)]):
        assert prediction.tokens in (("B",), ("B", "A"))
