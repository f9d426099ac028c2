"""InverseModel: outputs are reranked by a transducer from outputs back to sentences."""

import math

import pytest
import torch
from tests.models.small import LETTERS, SOURCE, TARGET, batches, examples, train

from permalign import InverseModel, Transducer, build_model
from permalign.errors import ConfigError
from permalign.options.model import ModelOptions
from permalign.tasks.base import Example
from permalign.text.batching import Batches
from permalign.text.vocabulary import Vocabulary

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
SENTENCES = [example.source for example in examples(8)]


def make(kind="exact", weight=1.0, inverse=EXACT, seed=0):
    torch.manual_seed(seed)
    return build_model({**KINDS[kind], "inverse": {**inverse, "weight": weight}}, SOURCE, TARGET)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weight", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_candidates_are_sorted_by_the_noisy_channel(kind, weight, length_penalty):
    model = make(kind, weight)
    reordered = 0
    predictions = model.predict(SENTENCES, beam=4, n_best=4, length_penalty=length_penalty, explain=True)
    for source, prediction in zip(SENTENCES, predictions, strict=True):
        outputs = [prediction, *prediction.alternatives]
        channel = []
        for output in outputs:
            assert model.score([source], [output.tokens])[0] == pytest.approx(output.score, abs=1e-4)
            writable = len(output.tokens) > 0 and len(source) <= 2 * len(output.tokens)
            inverse = model.inverse.score([output.tokens], [source])[0] if writable else -math.inf
            direct = output.score / (len(output.tokens) + 1) ** length_penalty
            channel.append(direct + weight * inverse if weight else direct)
        assert channel == sorted(channel, reverse=True)
        scores = [output.score / (len(output.tokens) + 1) ** length_penalty for output in outputs]
        reordered += scores != sorted(scores, reverse=True)
        assert prediction.explanation.target == prediction.tokens
    assert reordered == 0 or weight > 0
    assert reordered > 0 or weight < 3  # enough to change the order


def test_greedy_search_and_weight_zero_leave_the_direct_models_output():
    model = make()
    assert model.predict(SENTENCES) == model.direct.predict(SENTENCES)
    unweighted = make(weight=0.0)
    assert [one.tokens for one in unweighted.predict(SENTENCES, beam=3)] == [
        one.tokens for one in unweighted.direct.predict(SENTENCES, beam=3)
    ]


def test_n_best_does_not_change_the_best():
    model = make()
    four, one = model.predict(SENTENCES, beam=4, n_best=4), model.predict(SENTENCES, beam=4)
    assert [prediction.tokens for prediction in one] == [prediction.tokens for prediction in four]


def test_both_transducers_learn():
    model = make()
    (batch,) = batches(examples(20))
    loss = model.train().loss(batch)
    assert loss.total.item() == pytest.approx(sum(part.item() for part in loss.parts.values()))
    assert loss.parts["inverse"].item() == pytest.approx(model.inverse.loss(batch.swap_sides()).total.item())
    loss.total.backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters()
    )
    assert train(model, examples(20)) < 0.2
    sources = model.inverse.predict([example.target for example in examples(20)])
    right = sum(one.tokens == example.source for one, example in zip(sources, examples(20), strict=True))
    assert right >= 18


def test_the_direct_transducer_learns_as_if_it_were_alone():
    """Gradients are clipped separately, and the inverse transducer keeps all of its gradients."""
    model = make("hard")
    alone = Transducer(KINDS["hard"], SOURCE, TARGET)
    alone.load_state_dict(model.direct.state_dict())
    direct, inverse = model.independent_parameters()
    assert list(map(id, direct + inverse)) == list(map(id, model.parameters()))
    (batch,) = batches(examples(20))
    for one in (model, alone):
        torch.manual_seed(1)
        one.train().loss(batch).total.backward()
        for group in one.independent_parameters():
            torch.nn.utils.clip_grad_norm_(group, 0.1)
    for mine, other in zip(direct, alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    model.keep_only_reorderer_gradients()
    assert all(parameter.grad is not None for parameter in inverse)
    with_gradients = {id(parameter) for parameter in direct if parameter.grad is not None}
    assert with_gradients == {id(parameter) for parameter in model.direct.reorderer.parameters()}


def test_sources_that_the_inverse_cannot_write_add_nothing_to_the_loss():
    model = make().train()
    long, short = Example(tuple("abcdef"), ("A",), "0"), Example(("a",), ("A",), "1")
    (one,) = Batches([short], SOURCE, TARGET, 100, shuffle=False)
    (both,) = Batches([short, long], SOURCE, TARGET, 100, shuffle=False)
    (none,) = Batches([long], SOURCE, TARGET, 100, shuffle=False)
    alone = model.loss(one).parts["inverse"]
    torch.testing.assert_close(model.loss(both).parts["inverse"], alone / 2)  # a mean over both
    assert model.loss(none).parts["inverse"].item() == 0.0
    problem = model.find_training_problem(long)
    assert problem.only_inverse
    assert problem.reason.startswith("model.inverse.head.kind segments writes at most 2 words")
    assert model.find_training_problem(short) is None


def test_saved_models_rank_the_same(tmp_path):
    model = make()
    model.save_pretrained(tmp_path / "model")
    sources = [*SENTENCES, ("never", "seen"), (LETTERS[0],)]
    loaded = InverseModel.from_pretrained(tmp_path / "model")
    assert loaded.predict(sources, beam=3, n_best=2) == model.predict(sources, beam=3, n_best=2)


class TestBuiltInPython:
    """An inverse model from two transducers that were trained one by one."""

    @pytest.fixture
    def transducers(self):
        torch.manual_seed(3)
        return Transducer(KINDS["hard"], SOURCE, TARGET), Transducer(EXACT, TARGET, SOURCE)

    def test_it_is_what_options_build(self, transducers):
        model = InverseModel(*transducers, weight=0.7)
        torch.manual_seed(3)
        built = build_model({**KINDS["hard"], "inverse": {**EXACT, "weight": 0.7}}, SOURCE, TARGET)
        assert model.options == built.options
        assert model.predict(SENTENCES, beam=3, n_best=3) == built.predict(SENTENCES, beam=3, n_best=3)
        assert model.explain(SENTENCES[0]) == built.explain(SENTENCES[0])

    def test_it_is_saved_and_loaded(self, transducers, tmp_path):
        model = InverseModel(*transducers, weight=0.7).eval()
        model.save_pretrained(tmp_path)
        loaded = InverseModel.from_pretrained(tmp_path)
        assert loaded.inverse_weight == 0.7
        assert loaded.predict(SENTENCES, beam=3, n_best=3) == model.predict(SENTENCES, beam=3, n_best=3)
        assert loaded.explain(SENTENCES[0]) == model.explain(SENTENCES[0])

    @pytest.mark.parametrize("weight", [-1.0, math.inf, math.nan])
    def test_a_bad_weight_is_refused(self, transducers, weight):
        with pytest.raises(ValueError, match=f"weight is {weight}"):
            InverseModel(*transducers, weight=weight)

    def test_vocabularies_that_do_not_fit_are_refused(self, transducers):
        direct, inverse = transducers
        with pytest.raises(ValueError, match=r"Transducer\(options, direct.target, direct.source\)"):
            InverseModel(direct, direct)
        with pytest.raises(ValueError, match="must read the direct model's target vocabulary"):
            InverseModel(Transducer(KINDS["hard"], SOURCE, Vocabulary("XYZ")), inverse)
        with pytest.raises(ValueError, match="make an Ensemble of InverseModels"):
            InverseModel(InverseModel(direct, inverse), inverse)


@pytest.mark.parametrize(
    ("inverse", "message"),
    [
        ({"head": {"kind": "ssnt"}, "reorderer": EXACT["reorderer"]}, r"in model\.inverse: .*samples"),
        ({"head": {"pretrained": "some/model"}}, r"model\.inverse has a pretrained part"),
        ({"weight": -1.0}, r"inverse\.weight"),
        ({"wait": 1.0}, r"inverse\.wait.*inverse\.weight"),
    ],
)
def test_wrong_options_are_refused(inverse, message):
    with pytest.raises(ConfigError, match=message):
        ModelOptions.parse({**EXACT, "inverse": inverse})
