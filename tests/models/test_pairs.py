"""Every reorderer with every head: they learn, do not see what they should not, and ignore padding."""

import pytest
from tests.models.small import PAIRS, batches, examples, make, train

SAME = {"rel": 1e-6, "abs": 1e-6}
"""How much scores may differ with the other sentences of a batch, as docs/trust.md promises; the larger of the two."""

pytestmark = pytest.mark.parametrize(("reorderer", "head"), PAIRS)


def test_twenty_examples_are_learned(reorderer, head):
    some = examples(20)
    model = make(reorderer, head)
    assert train(model, some) < 0.1
    predictions = model.predict([example.source for example in some])
    right = sum(one.tokens == example.target for one, example in zip(predictions, some, strict=True))
    assert right >= 19


def test_shuffled_outputs_are_not_learned(reorderer, head):
    some = examples(40, shuffled=True)
    model = make(reorderer, head)
    train(model, some[:20], steps=60)
    held_out = [example for example in some[20:] if len(example.source) > 2]
    predictions = model.predict([example.source for example in held_out])
    right = sum(one.tokens == example.target for one, example in zip(predictions, held_out, strict=True))
    assert right <= len(held_out) // 4


def test_gradients_reach_every_parameter(reorderer, head):
    model = make(reorderer, head)
    (batch,) = batches(examples(20))
    model.train().loss(batch).total.backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without
    zero = [name for name, parameter in model.named_parameters() if not parameter.grad.abs().sum() > 0]
    assert not zero
    model.keep_only_reorderer_gradients()
    left = {name.split(".")[0] for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert left <= {"reorderer"}


def test_padding_and_other_sentences_change_nothing(reorderer, head):
    model = make(reorderer, head).eval()
    some = examples(12)
    sources, outputs = [e.source for e in some], [e.target for e in some]
    batched = model.score(sources, outputs)
    alone = [model.score([source], [output])[0] for source, output in zip(sources, outputs, strict=True)]
    assert batched == pytest.approx(alone, **SAME)
    predictions = model.predict(sources, beam=3)
    for source, prediction in zip(sources, predictions, strict=True):
        (single,) = model.predict([source], beam=3)
        assert single.tokens == prediction.tokens
        assert single.score == pytest.approx(prediction.score, **SAME)
        assert single.score == pytest.approx(prediction.score, abs=1e-5)  # all scores are small here


@pytest.mark.parametrize("beam", [1, 4])
def test_scores_of_predictions_are_their_likelihoods(reorderer, head, beam):
    model = make(reorderer, head)
    sources = [example.source for example in examples(8)]
    predictions = model.predict(sources, beam=beam, n_best=beam)
    for source, prediction in zip(sources, predictions, strict=True):
        assert len(prediction.alternatives) == beam - 1 or head == "tagging"
        for one in (prediction, *prediction.alternatives):
            assert model.score([source], [one.tokens])[0] == pytest.approx(one.score, abs=1e-4)


def test_a_length_penalty_sorts_by_normalised_scores(reorderer, head):
    model = make(reorderer, head)
    sources = [example.source for example in examples(8)]
    for source, prediction in zip(
        sources, model.predict(sources, beam=4, n_best=4, length_penalty=1.0), strict=True
    ):
        outputs = [prediction, *prediction.alternatives]
        means = [output.score / (len(output.tokens) + 1) for output in outputs]
        assert means == sorted(means, reverse=True)
        for output in outputs:
            assert model.score([source], [output.tokens])[0] == pytest.approx(output.score, abs=1e-4)


def test_saved_models_predict_the_same(reorderer, head, tmp_path):
    model = make(reorderer, head)
    model.save_pretrained(tmp_path / "model")
    loaded = type(model).from_pretrained(tmp_path / "model")
    sources = [example.source for example in examples(8)]
    assert loaded.predict(sources, beam=3, explain=True) == model.predict(sources, beam=3, explain=True)


def test_one_word_unknown_words_and_long_sentences(reorderer, head):
    model = make(reorderer, head)
    many = 20 if reorderer.startswith("labelled") else 100  # exact sums over labels are O(n^4 K^2)
    for source in (["a"], ["never", "seen"], ["a", "b"] * many):
        (prediction,) = model.predict([source], max_length=5, explain=True)
        assert prediction.score <= 0
        if head == "tagging":
            assert len(prediction.tokens) == len(source)
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        model.predict(["a", ""])
