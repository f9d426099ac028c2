"""Models that read their answers back to the sentence, to rank them by both ways."""

import math

import pytest
import torch
from tests.models.small import LETTERS, SOURCE, TARGET, batches, examples, train

from permalign.errors import ConfigError
from permalign.model import Transducer
from permalign.options.model import ModelOptions
from permalign.tasks.base import Example
from permalign.text.batching import Batches

SMALL = {
    "embedding_dim": 8,
    "embedding_dropout": 0.0,
    "encoder": {"hidden_size": 8, "dropout": 0.0},
    "hidden_size": 8,
    "dropout": 0.0,
}
REORDERER = {
    "embedding_dim": 8,
    "encoder": {"hidden_size": 8, "dropout": 0.0},
    "scorer_hidden_size": 8,
    "dropout": 0.0,
}
EXACT = {
    "reorderer": {**REORDERER, "kind": "separable", "objective": "exact"},
    "head": {**SMALL, "kind": "segments", "max_segment_length": 2},
}
KINDS = {
    "exact": EXACT,
    "tagging": {
        "reorderer": EXACT["reorderer"],
        "head": {**SMALL, "kind": "tagging", "encoder": {"kind": "none"}},
    },
    "hard": {
        "reorderer": {**REORDERER, "kind": "separable", "objective": "hard"},
        "head": {**SMALL, "kind": "ssnt"},
    },
}


def make(kind="exact", weight=1.0, back=EXACT, seed=0):
    torch.manual_seed(seed)
    return Transducer({**KINDS[kind], "inverse": {**back, "weight": weight}}, SOURCE, TARGET)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weight", [0.0, 0.5, 3.0])
def test_answers_are_ranked_by_both_ways(kind, weight):
    model = make(kind, weight)
    sources = [example.source for example in examples(8)]
    turned = 0
    for source, prediction in zip(
        sources, model.predict(sources, beam=4, n_best=4, explain=True), strict=True
    ):
        found = [prediction, *prediction.alternatives]
        ways = []
        for one in found:
            assert model.score([source], [one.tokens])[0] == pytest.approx(one.score, abs=1e-4)
            can_be = len(one.tokens) > 0 and len(source) <= 2 * len(one.tokens)
            way_back = model.back.score([one.tokens], [source])[0] if can_be else -math.inf
            ways.append(one.score + weight * way_back if weight else one.score)
        assert ways == sorted(ways, reverse=True)
        turned += [one.score for one in found] != sorted((one.score for one in found), reverse=True)
        assert prediction.explanation.target == prediction.tokens
    assert turned == 0 or weight > 0
    assert turned > 0 or weight < 3  # enough to change the order


def test_a_single_answer_is_the_one_without_a_way_back():
    model, sources = make(), [example.source for example in examples(8)]
    plain = Transducer(KINDS["exact"], SOURCE, TARGET)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "back." not in name})
    assert model.predict(sources) == plain.predict(sources)
    assert [one.tokens for one in make(weight=0.0).predict(sources, beam=3)] == [
        one.tokens for one in plain.predict(sources, beam=3)
    ]


def test_the_best_of_few_is_the_first_of_many():
    model, sources = make(), [example.source for example in examples(8)]
    some, one = model.predict(sources, beam=4, n_best=4), model.predict(sources, beam=4)
    assert [prediction.tokens for prediction in one] == [prediction.tokens for prediction in some]


def test_both_ways_learn_apart():
    model = make()
    (batch,) = batches(examples(20))
    loss = model.train().loss(batch)
    assert loss.total.item() == pytest.approx(sum(part.item() for part in loss.parts.values()))
    turned = model.back.loss(batch.swap_sides(torch.ones(20, dtype=torch.bool)))
    assert loss.parts["reading_back"].item() == pytest.approx(turned.total.item())
    loss.total.backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters()
    )
    assert train(model, examples(20)) < 0.2
    outputs = [example.target for example in examples(20)]
    read = model.back.predict(outputs)
    assert sum(one.tokens == example.source for one, example in zip(read, examples(20), strict=True)) >= 18


def test_the_way_there_learns_as_if_there_were_no_way_back():
    """Gradients are clipped for each way by itself, and the paper's training strategy leaves the way back alone."""
    model = make("hard")
    plain = Transducer(KINDS["hard"], SOURCE, TARGET)
    own = {name: value for name, value in model.state_dict().items() if not name.startswith("back.")}
    plain.load_state_dict(own)
    there, back = model.parameters_apart()
    assert sorted(map(id, there + back)) == sorted(map(id, model.parameters()))
    assert [parameter.shape for parameter in there] == [parameter.shape for parameter in plain.parameters()]
    (batch,) = batches(examples(20))
    for one in (model, plain):
        torch.manual_seed(1)
        one.train().loss(batch).total.backward()
        for some in one.parameters_apart():
            torch.nn.utils.clip_grad_norm_(some, 0.1)
    for mine, other in zip(there, plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    model.forget_head_gradients()
    assert all(parameter.grad is not None for parameter in back)
    assert {id(p) for p in there if p.grad is not None} == {id(p) for p in model.reorderer.parameters()}


def test_sentences_that_cannot_be_read_back_are_left_out():
    model = make().train()
    long, short = Example(tuple("abcdef"), ("A",), "0"), Example(("a",), ("A",), "1")
    (one,) = Batches([short], SOURCE, TARGET, 100, shuffle=False)
    (both,) = Batches([short, long], SOURCE, TARGET, 100, shuffle=False)
    (none,) = Batches([long], SOURCE, TARGET, 100, shuffle=False)
    alone = model.loss(one).parts["reading_back"]
    torch.testing.assert_close(model.loss(both).parts["reading_back"], alone / 2)  # a mean over both
    assert model.loss(none).parts["reading_back"].item() == 0.0


def test_saved_models_rank_the_same(tmp_path):
    model = make()
    model.save_pretrained(tmp_path / "model")
    sources = [example.source for example in examples(8)] + [("never", "seen"), (LETTERS[0],)]
    loaded = Transducer.from_pretrained(tmp_path / "model")
    assert loaded.predict(sources, beam=3, n_best=2) == model.predict(sources, beam=3, n_best=2)


@pytest.mark.parametrize(
    ("back", "said"),
    [
        ({"head": {"kind": "ssnt"}, "reorderer": EXACT["reorderer"]}, r"in model\.inverse: .*samples"),
        ({"head": {"pretrained": "some/model"}}, r"model\.inverse has a pretrained part"),
        ({"weight": -1.0}, r"inverse\.weight"),
        ({"wait": 1.0}, r"unknown option inverse\.wait.*inverse\.weight"),
    ],
)
def test_wrong_ways_back_are_refused(back, said):
    with pytest.raises(ConfigError, match=said):
        ModelOptions.parse({**EXACT, "inverse": back})
