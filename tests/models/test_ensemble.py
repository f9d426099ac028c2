"""Ensemble: several models that answer by the mean of their probabilities."""

import json
import math
from itertools import chain, product

import pytest
import torch
from tests.models.small import LETTERS, SOURCE, TARGET, batches, examples, train
from tests.models.test_inverse import EXACT, KINDS, SENTENCES, SMALL

from permalign import Ensemble, InverseModel, Transducer, build_model, load_model
from permalign.errors import ConfigError, DataError
from permalign.options.model import ModelOptions
from permalign.text.vocabulary import Vocabulary

REVERSED = {**EXACT, "weight": 0.5}
SUM_OVER_ORDERS = [kind for kind, options in KINDS.items() if options["reorderer"]["objective"] == "exact"]
WITHOUT_SUMS = {
    "hard": KINDS["hard"],
    "attention": {"head": {**SMALL, "kind": "attention"}},
    "fixed tagging": {"head": KINDS["tagging"]["head"]},
}


def make(kind="exact", size=3, inverse=None, seed=0):
    torch.manual_seed(seed)
    options = {**KINDS[kind], "ensemble_size": size} | ({"inverse": inverse} if inverse else {})
    return build_model(options, SOURCE, TARGET).eval()


def log_mean(values):
    return math.log(sum(math.exp(value) for value in values) / len(values))


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_the_logarithm_of_the_mean_probability(kind):
    model = make(kind)
    outputs = [example.target for example in examples(8)]
    each = [member.score(SENTENCES, outputs) for member in model.members]
    assert len({round(scores[0], 4) for scores in each}) == 3  # members differ
    for score, members in zip(model.score(SENTENCES, outputs), zip(*each, strict=True), strict=True):
        assert score == pytest.approx(log_mean(members), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beam", [1, 4])
def test_outputs_have_their_scores_and_are_sorted_by_them(kind, beam):
    model = make(kind)
    predictions = model.predict(SENTENCES, beam=beam, n_best=beam, explain=True)
    for source, prediction in zip(SENTENCES, predictions, strict=True):
        ranked = [prediction, *prediction.alternatives]
        for one in ranked:
            assert one.score == pytest.approx(model.score([source], [one.tokens])[0], abs=1e-4)
        assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
        assert len({one.tokens for one in ranked}) == len(ranked)
        assert prediction.explanation.target == prediction.tokens


@pytest.mark.parametrize("kind", SUM_OVER_ORDERS)
@pytest.mark.parametrize("beam", [1, 4])
def test_of_members_that_sum_over_orders_the_best_output_that_any_of_them_finds_is_chosen(kind, beam):
    model = make(kind)
    members = [member.predict(SENTENCES, beam=beam, n_best=beam) for member in model.members]
    predictions = model.predict(SENTENCES, beam=beam, n_best=beam)
    for source, prediction, found in zip(SENTENCES, predictions, zip(*members, strict=True), strict=True):
        offered = {one.tokens for first in found for one in (first, *first.alternatives)}
        scores = model.score([source] * len(offered), sorted(offered))
        assert prediction.score >= max(scores) - 1e-4


@pytest.mark.parametrize("kinds", [("hard", "hard"), ("hard", "attention"), ("hard", "fixed tagging")])
def test_a_wide_beam_over_the_mixture_finds_the_best_of_all_outputs(kinds):
    torch.manual_seed(3)
    model = Ensemble([Transducer(WITHOUT_SUMS[kind], SOURCE, TARGET) for kind in kinds]).eval()
    source = SENTENCES[0][:2]
    outputs = [output for length in range(3) for output in product(LETTERS.upper(), repeat=length)]
    scores = dict(zip(outputs, model.score([source] * len(outputs), outputs), strict=True))
    best = sorted(scores, key=lambda output: -scores[output])[:5]
    (found,) = model.predict([source], beam=len(outputs), n_best=5, max_length=2)
    assert [found.tokens, *(one.tokens for one in found.alternatives)] == best
    assert found.score == pytest.approx(scores[best[0]], abs=1e-5)


def test_an_output_that_the_first_member_would_not_write_can_win():
    model = make()
    ensemble, first = model.predict(SENTENCES, beam=2), model.members[0].predict(SENTENCES, beam=2)
    assert [one.tokens for one in ensemble] != [one.tokens for one in first]


def test_inverse_models_are_averaged_too():
    model = make(inverse=REVERSED)
    for source, prediction in zip(SENTENCES, model.predict(SENTENCES, beam=3, n_best=3), strict=True):
        ranks = []
        for one in (prediction, *prediction.alternatives):
            score = log_mean([member.direct.score([source], [one.tokens])[0] for member in model.members])
            assert score == pytest.approx(one.score, abs=1e-4)
            writable = len(one.tokens) > 0 and len(source) <= 2 * len(one.tokens)
            if writable:
                inverse = [member.inverse.score([one.tokens], [source])[0] for member in model.members]
                score += 0.5 * log_mean(inverse)
            ranks.append(score if writable else -math.inf)
        assert ranks == sorted(ranks, reverse=True)


@pytest.mark.parametrize("inverse", [None, REVERSED])
def test_members_learn_as_if_they_were_alone(inverse):
    model = make(size=2, inverse=inverse)
    batch = next(iter(batches(examples(16))))
    total = model.loss(batch)
    torch.testing.assert_close(total.total, sum(member.loss(batch).total for member in model.members))
    assert total.total.item() == pytest.approx(sum(part.item() for part in total.parts.values()))
    total.total.backward()
    gradients = [parameter.grad.clone() for parameter in model.members[1].parameters()]
    model.zero_grad()
    model.members[1].loss(batch).total.backward()
    for gradient, parameter in zip(gradients, model.members[1].parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_groups_of_independent_parameters():
    model = make(inverse=REVERSED)
    groups = model.independent_parameters()
    assert len(groups) == 6
    assert list(map(id, chain(*groups))) == list(map(id, model.parameters()))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model.keep_only_reorderer_gradients()
    for member in model.members:
        assert all(one.grad is not None for one in member.direct.reorderer.parameters())
        assert all(one.grad is None for one in member.direct.head.parameters())
        assert all(one.grad is not None for one in member.inverse.parameters())


def test_an_ensemble_learns_and_is_saved(tmp_path):
    model = make(size=2)
    data = examples(20)
    train(model, data)
    predictions = model.predict([example.source for example in data])
    assert sum(one.tokens == example.target for one, example in zip(predictions, data, strict=True)) >= 18
    model.save_pretrained(tmp_path)
    assert Ensemble.from_pretrained(tmp_path).predict(SENTENCES, beam=2) == model.predict(SENTENCES, beam=2)


class TestBuiltInPython:
    """Ensembles of models that were trained one by one."""

    def members(self):
        torch.manual_seed(5)
        return [Transducer(KINDS[kind], SOURCE, TARGET).eval() for kind in ("exact", "hard", "tagging")]

    def test_members_of_different_kinds(self):
        members = self.members()
        outputs = [example.target for example in examples(8)]  # as long as their sources
        each = [member.score(SENTENCES, outputs) for member in members]
        for order in (members, members[::-1]):
            model = Ensemble(order)
            for score, scores in zip(model.score(SENTENCES, outputs), zip(*each, strict=True), strict=True):
                assert score == pytest.approx(log_mean(scores), abs=1e-4)
            for source, prediction in zip(
                SENTENCES, model.predict(SENTENCES, beam=3, n_best=3, explain=True), strict=True
            ):
                assert prediction.score == pytest.approx(
                    model.score([source], [prediction.tokens])[0], abs=1e-4
                )
                assert model.explain(source, beam=3).target == prediction.tokens

    def test_a_member_that_cannot_write_an_output_gives_it_no_probability(self):
        exact, hard, tagging = self.members()
        source, output = ("a", "b"), ("A",)
        score = Ensemble([exact, tagging]).score([source], [output])[0]
        assert score == pytest.approx(exact.score([source], [output])[0] - math.log(2), abs=1e-5)
        assert Ensemble([tagging, tagging]).score([source], [output]) == [-math.inf]
        mixed = Ensemble([tagging, hard]).score([source, source], [output, ("A", "B")])
        assert all(math.isfinite(score) for score in mixed)

    def test_one_member_answers_as_it_does_alone(self):
        for member in self.members():
            model = Ensemble([member])
            for one, alone in zip(
                model.predict(SENTENCES, beam=3), member.predict(SENTENCES, beam=3), strict=True
            ):
                assert one.tokens == alone.tokens
                assert one.score == pytest.approx(alone.score, abs=1e-4)

    def test_it_is_saved_in_one_folder(self, tmp_path):
        exact, hard, tagging = self.members()
        torch.manual_seed(6)
        inverse = InverseModel(hard, Transducer(EXACT, TARGET, SOURCE), weight=0.5)
        model = Ensemble([exact, inverse, tagging]).eval()
        model.save_pretrained(tmp_path)
        assert len(list(tmp_path.glob("*.safetensors"))) == 1
        config = json.loads((tmp_path / "config.json").read_text())
        assert [member["head"]["kind"] for member in config["members"]] == ["segments", "ssnt", "tagging"]
        assert any(name.startswith("members.1.direct.head.") for name in model.state_dict())
        assert any(name.startswith("members.1.inverse.head.") for name in model.state_dict())
        loaded = load_model(tmp_path)
        assert isinstance(loaded, Ensemble)
        assert loaded.predict(SENTENCES, beam=3, n_best=3) == model.predict(SENTENCES, beam=3, n_best=3)
        assert loaded.explain(SENTENCES[0]) == model.explain(SENTENCES[0])
        for kind in (Transducer, InverseModel):
            with pytest.raises(DataError, match=r"kind Ensemble, .*permalign\.load_model"):
                kind.from_pretrained(tmp_path)

    def test_what_does_not_fit_is_refused(self):
        exact, hard, _ = self.members()
        other = Transducer(KINDS["hard"], SOURCE, Vocabulary("XYZ"))
        reverse = Transducer(EXACT, TARGET, SOURCE)
        for members, message in [
            ([], "at least one model"),
            (exact, "a list of at least one model"),
            ([exact, other], "the target vocabulary of member 1 differs from that of member 0"),
            ([exact, reverse], "the source vocabulary of member 1 differs"),
            ([exact, Ensemble([hard])], "member 1 is of the type Ensemble"),
            ([exact, "hard"], "member 1 is of the type str"),
            (
                [InverseModel(exact, reverse, 0.5), InverseModel(hard, reverse, 1.0)],
                r"the weights \[0.5, 1.0\]",
            ),
        ]:
            with pytest.raises(ValueError, match=message):
                Ensemble(members)


def test_a_transducer_is_a_single_model():
    for options in ({"ensemble_size": 2}, {"inverse": EXACT}):
        with pytest.raises(ConfigError, match=r"permalign\.build_model"):
            Transducer({**EXACT, **options}, SOURCE, TARGET)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ensemble_size": 0}, "ensemble_size is 0"),
        (
            {"ensemble_size": 2, "head": {**EXACT["head"], "pretrained": "some/model"}},
            "pretrained models cannot be part of an ensemble",
        ),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ModelOptions.parse({**EXACT, **options})


@pytest.mark.parametrize("kind", SUM_OVER_ORDERS)
def test_candidates_that_are_left_out_do_not_change_predictions(kind, monkeypatch):
    model = make(kind)
    fast = model.predict(SENTENCES, beam=4, n_best=2)
    monkeypatch.setattr(
        "permalign.models.ensemble.may_be_best", lambda scores, *_: torch.ones(len(scores)).bool().numpy()
    )
    for one, other in zip(fast, model.predict(SENTENCES, beam=4, n_best=2), strict=True):
        assert [one.tokens, *(more.tokens for more in one.alternatives)] == [
            other.tokens,
            *(more.tokens for more in other.alternatives),
        ]
        assert one.score == pytest.approx(other.score, abs=1e-5)
