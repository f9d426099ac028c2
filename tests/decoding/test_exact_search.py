"""Exact search finds the outputs with the best derivations: compared with all derivations of short sentences."""

from itertools import product

import pytest
import torch
from tests.models.small import make
from tests.tasks.test_program_parts import GRAMMARS, is_program

from permalign.decoding.exact_search import (
    ExactSearch,
    FoundOutput,
    SentenceScores,
    outside_bounds,
    search_exactly,
)
from permalign.structures import SeparablePermutation
from permalign.tasks.grammar import Grammar, Rule
from permalign.tasks.program_parts import ProgramParts

SOURCES = [("a", "b", "c"), ("d", "a"), ("f",)]
LETTERS = Grammar(
    ["Letter"],
    [Rule("A", "Letter", ("Letter",)), Rule("B", "Letter", ("Letter", "Letter")), Rule("C", "Letter")],
)


def random_scores(length, vocab_size, seed, normal_form=False, allow_nothing=True):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * 2

    splits = {
        (start, middle, end): tuple(draw(2).tolist())
        for start in range(length)
        for end in range(start + 2, length + 1)
        for middle in range(start + 1, end)
    }
    log_probs = draw(length, vocab_size + 1).log_softmax(1).tolist()
    words = [dict(enumerate(row[:-1])) for row in log_probs]
    nothing = [row[-1] if allow_nothing else -torch.inf for row in log_probs]
    return SentenceScores(splits, words, nothing, normal_form)


def all_derivations(scores, start=0, end=None):
    """Yield the output, the weight and the rule at the top of every derivation of a span."""
    end = len(scores.nothing) if end is None else end
    if end - start == 1:
        yield (), scores.nothing[start], -1
        for token, weight in scores.words[start].items():
            yield (token,), weight, -1
    for middle in range(start + 1, end):
        halves = all_derivations(scores, start, middle), list(all_derivations(scores, middle, end))
        for (left, left_weight, left_rule), (right, right_weight, _) in product(*halves):
            for rule, tokens in enumerate((left + right, right + left)):
                if not (scores.normal_form and left_rule == rule):
                    weight = scores.splits[start, middle, end][rule] + left_weight + right_weight
                    yield tokens, weight, rule


def best_outputs(scores, allowed=lambda tokens: True):
    """All outputs with the weights of their best derivations, best first."""
    best = {}
    for tokens, weight, _ in all_derivations(scores):
        if weight > best.get(tokens, -torch.inf) and allowed(tokens):
            best[tokens] = weight
    return sorted(best.items(), key=lambda item: -item[1])


def require_same(found, expected):
    assert [output.weight for output in found] == pytest.approx([weight for _, weight in expected])
    weights = dict(expected)
    assert all(output.weight == pytest.approx(weights[output.tokens]) for output in found)
    assert len({output.tokens for output in found}) == len(found)


def test_words_of_probability_one_are_written():
    scores = SentenceScores({(0, 1, 2): (0.0, -1.0)}, [{0: 0.0}, {1: 0.0}], [-torch.inf, -torch.inf], False)
    (output,) = ExactSearch(scores).find(1, max_items=100)
    assert output.tokens == (0, 1)


@pytest.mark.parametrize("normal_form", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("name", GRAMMARS)
def test_it_finds_the_best_programs(name, length, normal_form):
    grammar = GRAMMARS[name]
    names = sorted(grammar.tokens)
    scores = random_scores(length, len(names), length, normal_form)
    expected = best_outputs(scores, lambda tokens: is_program(grammar, [names[token] for token in tokens]))
    found = ExactSearch(scores, ProgramParts(grammar), names).find(6, max_items=10**6)
    require_same(found, expected[:6])


@pytest.mark.parametrize("allow_nothing", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_without_a_grammar_it_finds_the_best_outputs(length, allow_nothing):
    scores = random_scores(length, 2, seed=length, allow_nothing=allow_nothing)
    expected = [output for output in best_outputs(scores) if output[1] > -torch.inf]
    require_same(ExactSearch(scores).find(10, max_items=10**6), expected[:10])


def test_outputs_are_no_longer_than_allowed():
    scores = random_scores(4, 2, seed=0)
    expected = best_outputs(scores, lambda tokens: len(tokens) <= 2)
    require_same(ExactSearch(scores, max_length=2).find(5, max_items=10**6), expected[:5])


def test_it_stops_when_it_takes_too_many_items():
    assert ExactSearch(random_scores(4, 3, seed=0)).find(1, max_items=3) is None
    one_word = SentenceScores({}, [{0: 0.0}], [-torch.inf], False)
    assert ExactSearch(one_word).find(1, max_items=1) == [FoundOutput((0,), 0.0)]
    assert ExactSearch(one_word).find(1, max_items=0) is None


def test_no_completion_is_better_than_its_bound():
    scores = random_scores(4, 2, seed=3)
    best = max(weight for _, weight, _ in all_derivations(scores))
    tokens = [
        {0: max(nothing, *words.values())}
        for nothing, words in zip(scores.nothing, scores.words, strict=True)
    ]
    bounds = outside_bounds(scores.splits, tokens, whole=[0])
    for (start, end), outside in bounds.items():
        inside = max(weight for _, weight, _ in all_derivations(scores, start, end))
        assert inside + outside[0] <= best + 1e-9
    assert bounds[0, 4] == {0: 0}


def test_padding_changes_nothing():
    generator = torch.Generator().manual_seed(5)
    splits, words = torch.randn(2, 10, 2, generator=generator), torch.randn(2, 4, 8, generator=generator)
    lengths = torch.tensor([4, 3])
    padded = search_exactly(SeparablePermutation(splits, lengths), words, 5)[1]
    alone = SeparablePermutation(splits[1:, [0, 1, 3, 4]], torch.tensor([3]))  # the splits of three words
    (expected,) = search_exactly(alone, words[1:, :3], 5)
    assert padded == expected


@pytest.fixture
def model():
    model = make("exact", "segments", seed=4, max_segment_length=1)
    with torch.no_grad():  # sure enough of its words that outputs differ
        model.head.word_scores.of_cells.weight.mul_(6.0)
    return model


@pytest.mark.parametrize("constraint", [None, LETTERS], ids=["any output", "grammar"])
def test_a_model_finds_outputs_that_are_at_least_as_good_as_those_of_a_beam(model, constraint):
    exact = model.predict(SOURCES, beam=20, n_best=3, constraint=constraint, search="exact")
    by_beam = model.predict(SOURCES, beam=4, constraint=constraint)
    for source, found, other in zip(SOURCES, exact, by_beam, strict=True):
        assert found.score >= other.score - 1e-5
        assert model.score([source], [found.tokens])[0] == pytest.approx(found.score, abs=1e-4)
        if constraint is not None:
            constraint.read(found.tokens)


def test_sentences_that_take_too_long_are_searched_by_a_beam(model, monkeypatch):
    monkeypatch.setattr(
        "permalign.models.transducer.search_exactly", lambda *arguments: [None] * len(SOURCES)
    )
    assert model.predict(SOURCES, beam=3, search="exact") == model.predict(SOURCES, beam=3)


def test_words_and_nothing_are_all_that_a_token_can_write(model):
    batch = model._batch(SOURCES, [()] * len(SOURCES))
    with torch.no_grad():
        reading = model.eval().read(batch)
        log_probs = model.head.word_log_probs(reading.states, batch.source_lengths)
    assert torch.allclose(log_probs.exp().sum(-1)[2, 0], torch.ones(()))


@pytest.mark.parametrize(
    ("reorderer", "head", "options", "message"),
    [
        ("exact", "segments", {"max_segment_length": 2}, "at most one word"),
        ("exact", "segments", {"max_segment_length": 1, "history": "output"}, "at most one word"),
        ("labelled exact", "segments", {"max_segment_length": 1}, "labels"),
        ("exact", "tagging", {}, "depend on each other"),
        ("hard", "ssnt", {}, "sum over orders"),
    ],
)
def test_models_that_do_not_allow_it_say_so(reorderer, head, options, message):
    with pytest.raises(ValueError, match=message):
        make(reorderer, head, **options).predict(SOURCES, search="exact")


def test_a_function_is_not_a_grammar(model):
    with pytest.raises(ValueError, match="needs a grammar"):
        model.predict(SOURCES, constraint=lambda words: ["A", "</s>"], search="exact")
