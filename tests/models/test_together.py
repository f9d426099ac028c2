"""Several models that answer together, by the mean of their probabilities."""

import math
from itertools import chain

import pytest
import torch
from tests.models.small import SOURCE, TARGET, batches, examples, train
from tests.models.test_reading_back import EXACT, KINDS

from permalign.errors import ConfigError
from permalign.model import Transducer
from permalign.options.model import ModelOptions

SENTENCES = [example.source for example in examples(8)]


def make(kind="exact", together=3, back=None, seed=0):
    torch.manual_seed(seed)
    options = {**KINDS[kind], "ensemble_size": together} | ({"inverse": back} if back else {})
    return Transducer(options, SOURCE, TARGET).eval()


def alone(model, place):
    """A member as a model of its own."""
    options = model.options.model_copy(update={"ensemble_size": 1})
    one = Transducer(options, SOURCE, TARGET)
    one.load_state_dict(
        {
            name: value
            for name, value in model.members[place].state_dict().items()
            if not name.startswith("others.")
        }
    )
    return one.eval()


def log_mean(values):
    return math.log(sum(math.exp(value) for value in values) / len(values))


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_the_logarithm_of_the_mean_probability(kind):
    model = make(kind)
    outputs = [example.target for example in examples(8)]
    each = [alone(model, place).score(SENTENCES, outputs) for place in range(3)]
    assert len({round(scores[0], 4) for scores in each}) == 3  # members differ
    for score, members in zip(model.score(SENTENCES, outputs), zip(*each, strict=True), strict=True):
        assert score == pytest.approx(log_mean(members), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beam", [1, 4])
def test_answers_are_the_best_of_what_any_member_finds(kind, beam):
    model = make(kind)
    members = [alone(model, place).predict(SENTENCES, beam=beam, n_best=beam) for place in range(3)]
    answers = model.predict(SENTENCES, beam=beam, n_best=beam, explain=True)
    for source, answer, found in zip(SENTENCES, answers, zip(*members, strict=True), strict=True):
        offered = {one.tokens for first in found for one in (first, *first.alternatives)}
        ranked = [answer, *answer.alternatives]
        scores = model.score([source] * len(offered), sorted(offered))
        assert answer.score >= max(scores) - 1e-4
        for one in ranked:
            assert one.score == pytest.approx(model.score([source], [one.tokens])[0], abs=1e-4)
        assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
        assert len({one.tokens for one in ranked}) == len(ranked)
        assert answer.explanation.target == answer.tokens


def test_an_answer_that_the_first_would_not_give_can_win():
    model = make()
    together, first = model.predict(SENTENCES, beam=2), alone(model, 0).predict(SENTENCES, beam=2)
    assert [one.tokens for one in together] != [one.tokens for one in first]


def test_both_ways_are_means_over_all():
    model = make(back={**EXACT, "weight": 0.5})
    members = [alone(model, place) for place in range(3)]
    for source, answer in zip(SENTENCES, model.predict(SENTENCES, beam=3, n_best=3), strict=True):
        ranks = []
        for one in (answer, *answer.alternatives):
            there = log_mean([member.score([source], [one.tokens])[0] for member in members])
            readable = len(one.tokens) > 0 and len(source) <= 2 * len(one.tokens)
            assert there == pytest.approx(one.score, abs=1e-4)
            if readable:
                there += 0.5 * log_mean([member.back.score([one.tokens], [source])[0] for member in members])
            ranks.append(there if readable else -math.inf)
        assert ranks == sorted(ranks, reverse=True)


@pytest.mark.parametrize("back", [None, {**EXACT, "weight": 0.5}])
def test_members_learn_as_if_they_were_alone(back):
    model = make(together=2, back=back)
    batch = next(iter(batches(examples(16))))
    total = model.loss(batch)
    parts = [alone(model, place).loss(batch).total for place in range(2)]
    torch.testing.assert_close(total.total, sum(parts))
    total.total.backward()
    single = alone(model, 1)
    single.loss(batch).total.backward()
    for one, other in zip(model.members[1].parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_what_learns_by_itself_is_apart():
    model = make(back={**EXACT, "weight": 0.5})
    groups = model.parameters_apart()
    assert len(groups) == 6
    everything = list(chain(*groups))
    assert len(everything) == len({id(one) for one in everything}) == len(list(model.parameters()))
    for parameter in everything:
        parameter.grad = torch.ones_like(parameter)
    model.forget_head_gradients()
    for member in model.members:
        assert all(one.grad is not None for one in member.reorderer.parameters())
        assert all(one.grad is None for one in member.head.parameters())
        assert all(one.grad is not None for one in member.back.parameters())


def test_they_learn_and_are_saved_together(tmp_path):
    model = make(together=2)
    data = examples(20)
    train(model, data)
    answers = model.predict([example.source for example in data])
    assert sum(one.tokens == example.target for one, example in zip(answers, data, strict=True)) >= 18
    model.save_pretrained(tmp_path)
    assert Transducer.from_pretrained(tmp_path).predict(SENTENCES, beam=2) == model.predict(SENTENCES, beam=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ensemble_size": 0}, "ensemble_size is 0"),
        (
            {"ensemble_size": 2, "head": {**EXACT["head"], "pretrained": "some/model"}},
            "pretrained models cannot be part of an ensemble",
        ),
    ],
)
def test_what_cannot_be_together_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        ModelOptions.parse({**EXACT, **options})
