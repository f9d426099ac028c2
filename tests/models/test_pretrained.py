"""Contextual embeddings of a pretrained model, named in a config and saved with the model; nothing is downloaded."""

import shutil
import sys

import pytest
import torch
from tests.encoders.test_huggingface import PIECES, make_model, make_tokenizer

from permalign import Transducer
from permalign.encoders.huggingface import ContextualEmbeddings, HuggingFaceEncoder
from permalign.errors import ConfigError, PermalignError
from permalign.options.model import ModelOptions
from permalign.tasks.base import Example
from permalign.text.batching import Batches
from permalign.text.subwords import Subwords
from permalign.text.vocabulary import Vocabulary

transformers = pytest.importorskip(
    "transformers", reason='the pretrained encoder needs transformers: pip install "permalign[hf]"'
)

SENTENCES = ["the river", "longest rivers in texas", "in texas", "texas"]
EXAMPLES = [
    Example(tuple(text.split()), tuple(word.upper() for word in reversed(text.split())), text)
    for text in SENTENCES
]
SOURCE = Vocabulary.build(example.source for example in EXAMPLES)
TARGET = Vocabulary.build(example.target for example in EXAMPLES)
HEAD = {"kind": "ssnt", "embedding_dim": 6, "hidden_size": 16, "encoder": {"hidden_size": 8}}
REORDERER = {"kind": "separable", "scorer_hidden_size": 16, "encoder": {"hidden_size": 12}}
CASES = {
    "reorderer": {"encoder": {"kind": "none"}},
    "reorderer with a BiLSTM": {},
    "head": {"embedding_dim": 10},
    "both": {"encoder": {"kind": "none"}},
    "shared": {"encoder": {"kind": "none"}, "shared_embeddings": True},
}
SAVED = {
    "reorderer": {"pretrained-reorderer"},
    "reorderer with a BiLSTM": {"pretrained-reorderer"},
    "head": {"pretrained-head"},
    "both": {"pretrained-reorderer", "pretrained-head"},
    "shared": {"pretrained-head"},
}


def save(folder, model):
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def original(tmp_path):
    return save(tmp_path / "original", make_model(pooler=True))


def make(original, case="reorderer", **reorderer):
    torch.manual_seed(0)
    named = {"pretrained": str(original)}
    options = {
        "reorderer": REORDERER
        | CASES[case]
        | (named if "pretrained-reorderer" in SAVED[case] else {})
        | reorderer,
        "head": HEAD | (named if "pretrained-head" in SAVED[case] else {}),
    }
    return Transducer(options, SOURCE, TARGET)


def train(model, steps=12):
    (batch,) = Batches(EXAMPLES, SOURCE, TARGET, 1000, shuffle=False)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(steps):
        loss = model.train().loss(batch).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def same_predictions(model, other):
    expected, found = model.predict(SENTENCES, explain=True), other.predict(SENTENCES, explain=True)
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [one.explanation.order for one in found] == [one.explanation.order for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_it_trains_and_is_loaded_without_the_original(case, original, tmp_path):
    model = make(original, case)
    losses = train(model)
    assert sum(losses[-3:]) < 0.9 * sum(losses[:3])
    untouched = [name for name, one in model.named_parameters() if not one.grad.abs().sum()]
    assert untouched == []
    model.save_pretrained(tmp_path / "run" / "model")
    shutil.rmtree(original)
    assert {path.name for path in (tmp_path / "run" / "model").iterdir() if path.is_dir()} == SAVED[case]
    assert [path.name for path in tmp_path.rglob("*.safetensors")] == ["model.safetensors"]
    loaded = Transducer.from_pretrained(tmp_path / "run")
    same_predictions(model, loaded)
    loaded.save_pretrained(tmp_path / "again")
    same_predictions(model, Transducer.from_pretrained(tmp_path / "again"))


def test_training_starts_from_the_pretrained_weights(original):
    model = make(original, "both")
    expected = HuggingFaceEncoder.from_pretrained(original).state_dict()
    for words in (model.embeddings, model.reorderer.source_encoder.embeddings):
        torch.testing.assert_close(words.encoder.state_dict(), expected)
    assert model.embeddings.encoder is not model.reorderer.source_encoder.embeddings.encoder


def test_shared_embeddings_are_one_module(original):
    model = make(original, "shared")
    assert isinstance(model.embeddings, ContextualEmbeddings)
    assert model.reorderer.source_encoder.embeddings is model.embeddings


def test_sinkhorn_and_local_use_it_too(original):
    for options in ({"kind": "sinkhorn"}, {"kind": "sinkhorn", "encoder": {"kind": "bilstm"}}):
        assert len(make(original, **options).predict(SENTENCES)) == len(SENTENCES)
    model = Transducer(
        {"reorderer": {"kind": "local"}, "head": HEAD | {"pretrained": str(original)}}, SOURCE, TARGET
    )
    assert len(model.predict(SENTENCES)) == len(SENTENCES)


def test_only_the_encoder_of_an_encoder_decoder_is_used(tmp_path):
    config = transformers.T5Config(
        vocab_size=len(PIECES), d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2
    )
    model = make(save(tmp_path / "original", transformers.T5Model(config)))
    model.save_pretrained(tmp_path / "model")
    same_predictions(model, Transducer.from_pretrained(tmp_path / "model"))


def test_half_precision_is_converted(tmp_path):
    model = make(save(tmp_path / "original", make_model().half()))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    model.save_pretrained(tmp_path / "model")
    same_predictions(model, Transducer.from_pretrained(tmp_path / "model"))


def test_an_encoder_passed_from_python_is_saved(tmp_path):
    options = {"reorderer": REORDERER, "head": HEAD | {"pretrained": "passed from Python"}}
    encoder = HuggingFaceEncoder(make_model(pooler=True), make_tokenizer(), "first")
    model = Transducer(options, SOURCE, TARGET, {"head": encoder})
    model.save_pretrained(tmp_path / "model")
    loaded = Transducer.from_pretrained(tmp_path / "model")
    assert loaded.embeddings.encoder.pooling == "first"
    same_predictions(model, loaded)


def test_loading_from_the_hub(original, tmp_path):
    model = make(original, "both")
    cache = tmp_path / "cache" / "models--someone--rivers"
    model.save_pretrained(cache / "snapshots" / ("0" * 40))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    found = Transducer.from_pretrained("someone/rivers", cache_dir=tmp_path / "cache", local_files_only=True)
    same_predictions(model, found)


def test_a_model_in_an_installed_package(original, tmp_path, monkeypatch):
    package = tmp_path / "packages" / "rivers_model"
    shutil.copytree(original, package / "data" / "model")
    (package / "__init__.py").write_text("raise ImportError('it need not be imported')")
    monkeypatch.syspath_prepend(str(package.parent))
    same_predictions(make(original), make("package:rivers_model/data/model"))
    for name, message in {
        "package:rivers_model/tokens": "has no folder 'tokens'",
        "package:no_such_package/model": "no installed package 'no_such_package'",
        "package:../rivers_model": r"no installed package '\.\.'",
        "package:": "no installed package ''",
    }.items():
        with pytest.raises(PermalignError, match=message):
            make(name)


class TestErrors:
    @pytest.mark.parametrize("part", ["reorderer", "head"])
    def test_subwords_are_refused(self, part, original):
        pieces = Subwords.train([example.source for example in EXAMPLES], 30)
        options = {"reorderer": REORDERER, "head": HEAD}
        options[part] = options[part] | {"pretrained": str(original)}
        with pytest.raises(ConfigError, match=rf"{part}\.pretrained .* reads whole words, .* Subwords"):
            Transducer(options, pieces, TARGET)

    def test_without_transformers(self, original, tmp_path, monkeypatch):
        make(original).save_pretrained(tmp_path / "model")
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(PermalignError, match=r"permalign\[hf\]"):
            make(original)
        with pytest.raises(PermalignError, match=r"permalign\[hf\]"):
            Transducer.from_pretrained(tmp_path / "model")

    def test_a_missing_model(self, tmp_path):
        with pytest.raises(PermalignError, match="cannot be loaded as a pretrained encoder"):
            make(tmp_path / "nothing")

    def test_a_tokenizer_without_an_unknown_token(self, original):
        make_tokenizer(unk_token=None).save_pretrained(original)
        with pytest.raises(ConfigError, match=r"reorderer\.pretrained is .*unknown token"):
            make(original)

    @pytest.mark.parametrize("broken", ["{}", "not JSON"])
    def test_a_broken_description(self, broken, original, tmp_path):
        make(original).save_pretrained(tmp_path / "model")
        path = tmp_path / "model" / "pretrained-reorderer" / "config.json"
        path.write_text(broken)
        with pytest.raises(PermalignError, match=r"pretrained-reorderer/config\.json: is damaged"):
            Transducer.from_pretrained(tmp_path / "model")
        (tmp_path / "model" / "checksums.json").unlink()
        with pytest.raises(PermalignError, match="pretrained-reorderer: does not describe"):
            Transducer.from_pretrained(tmp_path / "model")
        path.unlink()
        with pytest.raises(PermalignError, match=r"has no pretrained-reorderer/config\.json"):
            Transducer.from_pretrained(tmp_path / "model")

    def test_an_odd_size(self, tmp_path):
        config = transformers.BertConfig(
            vocab_size=len(PIECES), hidden_size=9, num_hidden_layers=1, num_attention_heads=3
        )
        folder = save(tmp_path, transformers.BertModel(config))
        with pytest.raises(ConfigError, match="need an even size"):
            make(folder)
        make(folder, encoder={"kind": "bilstm"})

    @pytest.mark.parametrize(
        ("reorderer", "message"),
        [
            ({"kind": "separable", "encoder": {"kind": "none"}}, r"Set reorderer\.pretrained"),
            (
                {"kind": "sinkhorn", "encoder": {"kind": "none"}, "shared_embeddings": True},
                r"Set reorderer\.pretrained",
            ),
            ({"kind": "separable", "pretrained": "a", "shared_embeddings": True}, "Set one of them"),
            ({"kind": "local", "pretrained": "a"}, r"Set head\.pretrained"),
            ({"kind": "separable", "pretrained": ""}, r"reorderer\.pretrained is ''"),
        ],
    )
    def test_options_that_contradict_each_other(self, reorderer, message):
        with pytest.raises(ConfigError, match=message):
            ModelOptions.parse({"reorderer": reorderer})
