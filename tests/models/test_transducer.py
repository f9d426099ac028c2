"""A transducer as its users see it: outputs, explanations, constraints, files, and errors."""

import json
from itertools import product

import pytest
import torch
from safetensors.torch import save_file
from tests.models.small import HEADS, REORDERERS, batches, examples, make, train

from permalign import Transducer, load_model
from permalign.errors import PermalignError
from permalign.options import renames
from permalign.tasks.scan import ScanSP
from permalign.text.batching import hide_words
from permalign.text.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def trained():
    """A model that reverses words, by trees and monotone alignment."""
    model = make("soft", "ssnt")
    train(model, examples(60), steps=400)
    return model.eval()


@pytest.fixture
def folder(tmp_path):
    make("soft", "ssnt").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


class TestPredictions:
    def test_three_lines_from_a_run_to_an_output(self, trained, tmp_path):
        trained.save_pretrained(tmp_path / "run" / "model")
        model = load_model(tmp_path / "run")
        assert model.predict(["a b c"])[0].text == "C B A"

    def test_order_is_kept_across_batches(self, trained):
        sources = [example.source for example in examples(30)]
        at_once, in_batches = trained.predict(sources), trained.predict(sources, batch_size=7)
        assert [one.tokens for one in at_once] == [one.tokens for one in in_batches]
        assert [one.tokens for one in at_once] != [one.tokens for one in at_once[::-1]]

    @pytest.mark.parametrize("reorderer", ["exact", "labelled exact"])
    def test_scores_that_are_not_asked_for(self, reorderer):
        model = make(reorderer, "segments").eval()
        scored = model.predict(["a b c", "f e"], explain=True)
        plain = model.predict(["a b c", "f e"], explain=True, scores=False)
        assert [one.tokens for one in plain] == [one.tokens for one in scored]
        assert [one.explanation for one in plain] == [one.explanation for one in scored]
        assert all(one.score != one.score for one in plain)  # NaN
        by_beam = model.predict(["a b c"], beam=3, scores=False)  # several candidates have to be ranked
        assert by_beam == model.predict(["a b c"], beam=3)

    def test_explanations(self, trained):
        (prediction,) = trained.predict(["a b c"], explain=True)
        explanation = prediction.explanation
        assert explanation.source == ("a", "b", "c")
        assert explanation.target == prediction.tokens == ("C", "B", "A")
        assert explanation.reordered == tuple(explanation.source[token] for token in explanation.order)
        assert explanation.derivation.order == explanation.order
        assert sorted(token for segment in explanation.segments for token in segment.source) == [0, 1, 2]
        assert [word for segment in explanation.segments for word in segment.target] == [0, 1, 2]
        assert "reordered: " in explanation.draw()
        assert len(explanation.alignment) == 3

    def test_n_best_outputs_are_sorted(self, trained):
        (prediction,) = trained.predict(["a b c"], beam=5, n_best=5)
        scores = [one.score for one in (prediction, *prediction.alternatives)]
        assert scores == sorted(scores, reverse=True)
        assert len({one.tokens for one in (prediction, *prediction.alternatives)}) == 5

    def test_training_mode_is_restored(self, trained):
        trained.train()
        trained.predict(["a"])
        trained.score(["a"], ["A"])
        assert trained.training
        trained.eval()

    def test_parts_of_the_loss(self):
        prior = {"inversion_rate": 0.3, "inversion_weight": 0.5}
        model = Transducer(
            {"reorderer": {**REORDERERS["soft"], **prior}, "head": {"kind": "ssnt"}}, *vocabularies()
        )
        loss = model.loss(batches(examples(5))[0])
        assert set(loss.parts) == {"negative_log_likelihood", "inversion_prior"}
        torch.testing.assert_close(loss.total, sum(loss.parts.values()))

    @pytest.mark.parametrize("decoding", ["greedy", "viterbi", "permutation", "marginal"])
    def test_decodings(self, decoding):
        reorderer = {**REORDERERS["soft"], "decoding": decoding, "scorer_hidden_size": 8, "embedding_dim": 8}
        model = Transducer(
            {"reorderer": reorderer, "head": {"kind": "ssnt", "hidden_size": 8}}, *vocabularies()
        )
        (prediction,) = model.predict(["a b c d"], explain=True)
        assert (prediction.explanation.order is None) == (decoding == "marginal")
        assert (prediction.explanation.derivation is None) == (decoding in ("permutation", "marginal"))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"sentences": ["a"], "beam": 1, "n_best": 2}, "Widen the beam"),
            ({"sentences": ["a", "  "]}, "sentence 1 is empty"),
        ],
    )
    def test_bad_input_is_refused(self, trained, arguments, message):
        with pytest.raises(ValueError, match=message):
            trained.predict(**arguments)

    def test_a_single_sentence_has_a_single_prediction(self, trained):
        assert trained.predict("a b").text == trained("a b").text == trained.predict(["a b"])[0].text

    def test_scores_need_one_output_for_each_sentence(self, trained):
        with pytest.raises(ValueError, match="2 sentences but 1 outputs"):
            trained.score(["a", "b"], ["A"])

    @pytest.mark.parametrize("reorderer", ["exact", "labelled exact"])
    def test_scores_over_all_orders_need_no_search(self, reorderer, monkeypatch):
        model = make(reorderer, "segments").eval()
        expected = model.score(["a b c"], ["C B A"])
        batch = batches(examples(3))[0]
        loss = model.loss(batch).total
        monkeypatch.setattr(type(model.reorderer), "_decode", None)
        assert model.score(["a b c"], ["C B A"]) == expected
        assert torch.equal(model.loss(batch).total, loss)

    def test_no_sentences_no_predictions(self, trained):
        assert trained.predict([]) == []
        assert trained.score([], []) == []


def vocabularies():
    model = make("none", "ssnt")
    return model.source, model.target


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("beam", [1, 3])
def test_with_a_grammar_every_output_is_a_program(head, beam):
    task = ScanSP()
    some = task.examples("len/train")[::50]
    source = Vocabulary.build(example.source for example in some)
    target = Vocabulary.build(example.target for example in some)
    options = {
        "reorderer": REORDERERS["soft"],
        "head": {"kind": head, "max_segment_length": 2, "hidden_size": 16},
    }
    torch.manual_seed(0)
    model = Transducer(options, source, target)
    for prediction in model.predict([example.source for example in some], beam, constraint=task.grammar):
        task.grammar.read(prediction.tokens)


@pytest.mark.parametrize("head", ["ssnt", "swan", "attention"])
def test_a_wide_beam_equals_exhaustive_search(head):
    source, target = Vocabulary(["a", "b"]), Vocabulary(["x", "y"])
    torch.manual_seed(1)
    options = {
        "reorderer": {**REORDERERS["soft"], "scorer_hidden_size": 8},
        "head": {"kind": head, "hidden_size": 8},
    }
    model = Transducer(options, source, target).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # away from nearly uniform probabilities
    outputs = [words for length in range(5) for words in product("xy", repeat=length)]
    for sentence in ("a", "a b", "b b a"):
        scores = model.score([sentence] * len(outputs), outputs)
        ranked = sorted(zip(scores, outputs, strict=True), reverse=True)[:3]
        (best,) = model.predict([sentence], beam=32, n_best=3, max_length=4)
        found = [(one.score, one.tokens) for one in (best, *best.alternatives)]
        assert [tokens for _, tokens in found] == [tokens for _, tokens in ranked]
        assert [score for score, _ in found] == pytest.approx([score for score, _ in ranked])


def test_encoders_can_be_transformers():
    encoder = {"kind": "transformer", "hidden_size": 16, "num_heads": 2}
    reorderer = {
        **REORDERERS["hard"],
        "encoder": {**encoder, "num_layers": 2},
    }
    model = Transducer(
        {"reorderer": reorderer, "head": {"kind": "ssnt", "encoder": encoder}}, *vocabularies()
    )
    before = model.loss(batches(examples(5))[0]).total.item()
    assert train(model, examples(5), steps=40, rate=3e-3) < before / 2
    assert model.predict(["a b"])[0].score < 0


def test_a_function_can_say_what_may_follow():
    def only_a(words):
        return ["A"] if len(words) < 3 else ["</s>"]

    assert make("soft", "ssnt").predict(["b c"], constraint=only_a)[0].text == "A A A"


class TestFiles:
    def test_they_are_readable(self, folder):
        written = {path.name for path in folder.iterdir()}
        assert written == {
            "README.md", "checksums.json", "config.json", "model.safetensors", "source.json", "target.json",
        }  # fmt: skip
        assert json.loads((folder / "config.json").read_text())["options"]["head"]["kind"] == "ssnt"

    def test_renamed_parameters_are_still_loaded(self, folder, monkeypatch):
        model = Transducer.from_pretrained(folder)
        state = {name.replace("head.", "writer."): value for name, value in model.state_dict().items()}
        save_file(state, folder / "model.safetensors")
        (folder / "checksums.json").unlink()
        with pytest.raises(PermalignError, match="parameter head"):
            Transducer.from_pretrained(folder)
        monkeypatch.setitem(renames.PARAMETERS, "writer.", "head.")
        assert Transducer.from_pretrained(folder).predict(["a b"]) == model.predict(["a b"])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda record: record | {"version": 99},
                "version 99 of the format, but this permalign reads version 2",
            ),
            (lambda record: record | {"format": "something"}, "not the config of a permalign model"),
            (lambda record: record | {"options": {"hed": {}}}, "did you mean head"),
            (lambda record: record | {"kind": "Tree"}, "of the unknown kind 'Tree'"),
        ],
    )
    def test_a_wrong_config_is_refused(self, folder, change, message):
        path = folder / "config.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
        (folder / "checksums.json").unlink()
        with pytest.raises(PermalignError, match=message):
            Transducer.from_pretrained(folder)

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors", "source.json", "target.json"])
    @pytest.mark.parametrize("checked", [True, False])
    def test_broken_and_missing_files_are_named(self, folder, name, checked):
        if not checked:
            (folder / "checksums.json").unlink()
        (folder / name).write_bytes(b"\x00 not this")
        with pytest.raises(PermalignError, match=name):
            Transducer.from_pretrained(folder)
        (folder / name).unlink()
        with pytest.raises(PermalignError, match=name):
            Transducer.from_pretrained(folder)

    def test_a_missing_model_is_reported(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(PermalignError, match="there is no folder"):
            Transducer.from_pretrained(str(tmp_path / "nothing"))


class TestLimits:
    def test_without_a_discrete_order_there_are_no_segments(self):
        reorderer = {**REORDERERS["soft"], "decoding": "marginal"}
        model = Transducer({"reorderer": reorderer, "head": {"kind": "ssnt"}}, *vocabularies())
        explanation = model.predict(["a b c"], explain=True)[0].explanation
        assert explanation.segments is None
        assert explanation.alignment is None

    @pytest.mark.parametrize("max_segment_length", [1, 2])
    def test_swan_keeps_to_the_grammar_within_its_maximum_length(self, max_segment_length):
        task = ScanSP()
        some = task.examples("len/train")[::40]
        source, target = (Vocabulary.build(getattr(e, side) for e in some) for side in ("source", "target"))
        head = {"kind": "swan", "max_segment_length": max_segment_length, "hidden_size": 8}
        torch.manual_seed(0)
        model = Transducer({"reorderer": REORDERERS["none"], "head": head}, source, target)
        for prediction in model.predict([e.source for e in some], beam=2, constraint=task.grammar):
            task.grammar.read(prediction.tokens)

    @pytest.mark.parametrize("objective", ["soft", "exact"])
    def test_a_sentence_without_any_program_does_not_affect_the_others(self, objective):
        task = ScanSP()
        words = ["jump", "walk", "twice", "and", "left"]
        options = {
            "reorderer": REORDERERS[objective],
            "head": {"kind": "tagging", "encoder": {"kind": "none"}},
        }
        model = Transducer(options, Vocabulary(words), Vocabulary(words))
        sentences = [["jump"] * 10, ["jump", "twice"]]
        impossible, possible = model.predict(sentences, constraint=task.grammar, explain=True)
        assert (impossible.tokens, impossible.score) == ((), float("-inf"))
        assert impossible.explanation.segments is None
        task.grammar.read(possible.tokens)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"batch_size": 0}, "batch_size is 0"),
            ({"max_length": 0}, "max_length is 0"),
            ({"constraint": "geoquery"}, "must be a grammar"),
        ],
    )
    def test_arguments_out_of_range(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            make("soft", "ssnt").predict(["a"], **arguments)

    @pytest.mark.parametrize(
        "options",
        [
            {"reorderer": {"kind": "separable", "encoder": {"hidden_size": 15}}},
            {"head": {"encoder": {"hidden_size": 15}}},
            {"head": {"encoder": {"kind": "transformer", "hidden_size": 30}}},
        ],
    )
    def test_sizes_that_cannot_be_halved(self, options):
        with pytest.raises(PermalignError, match=r"hidden_size is \d+, but must be"):
            Transducer(options, *vocabularies())


@pytest.mark.parametrize("reorderer", ["soft", "exact"])
def test_words_are_hidden_from_reorderer_and_head_in_training_only(reorderer):
    head = "segments" if reorderer == "exact" else "ssnt"
    (batch,) = batches(examples(8))
    model, plain = make(reorderer, head, word_dropout=0.5), make(reorderer, head)
    assert torch.equal(model.eval().loss(batch).total, plain.eval().loss(batch).total)

    torch.manual_seed(1)
    loss = model.train().loss(batch).total
    torch.manual_seed(1)
    expected = plain.train().loss(hide_words(batch, 0.5)).total
    assert torch.equal(loss, expected)
    assert not torch.equal(expected, plain.loss(batch).total)


@pytest.mark.parametrize("sentences", [3, [3], [["a", 3]], [None]])
def test_sentences_that_are_no_text_are_named(sentences):
    with pytest.raises(
        TypeError, match=r"should be a string or a list of words|expected a list of sentences"
    ):
        make("none", "tagging").predict(sentences)


@pytest.mark.parametrize("pairs", ["a b", ("a b", "A B"), [("a b", "A", "B")], [("a", 3)], 3])
def test_pairs_that_are_no_pairs_are_named(pairs):
    with pytest.raises(TypeError, match=r"expected pairs|expected a list of pairs|should be a string"):
        make("none", "tagging").align(pairs)
