"""Runs with pretrained models: their learning rate, and the words that they can read."""

import os
import signal

import pytest
import torch
from tests.encoders.test_huggingface import PIECES, make_model, make_tokenizer
from tests.training.small_run import SILENT, remains, write_data

from permalign import load_model
from permalign.errors import ConfigError
from permalign.options.run import RunOptions
from permalign.text.codec import SPECIALS
from permalign.training.experiments import load_experiment
from permalign.training.interrupt_handler import SavedInterrupt
from permalign.training.launch import resume, train
from permalign.training.progress_display import Display
from permalign.training.session import make_optimizer
from permalign.training.setup import prepare

WHOLE_WORDS = {"the", "river", "in", "texas", "long", "-"}  # of PIECES
SMALL = {"embedding_dim": 8, "hidden_size": 8}


@pytest.fixture
def pretrained(tmp_path):
    """A folder with a small model and its tokenizer."""
    make_model().save_pretrained(tmp_path / "pretrained")
    make_tokenizer().save_pretrained(tmp_path / "pretrained")
    return tmp_path / "pretrained"


def options(folder, pretrained, text=None, reorderer=None, **training):
    reorderer = {
        "kind": "separable",
        "scorer_hidden_size": 8,
        "embedding_dim": 8,
        "encoder": {"hidden_size": 8},
    } | (reorderer or {})
    return {
        "task": {"name": "own", "path": str(write_data(folder))},
        "text": {"source": text or {}},
        "model": {
            "reorderer": {"shared_embeddings": True, **reorderer},
            "head": {"kind": "ssnt", "pretrained": pretrained and str(pretrained), **SMALL},
        },
        "training": {"max_steps": 4, "evaluate_every": 2, "max_dev_examples": 2, **training},
    }


def moved(folder, model):
    """How far the pretrained parameters, and all others, have moved in training; Adam moves them by its rate."""
    torch.manual_seed(0)
    start = prepare(RunOptions.parse(model)).model.state_dict()
    end = load_model(folder).state_dict()
    distances = {name: float((end[name] - start[name]).abs().max()) for name in start}
    theirs = {name for name in start if "embeddings.encoder" in name}
    assert theirs
    assert theirs != set(start)
    return max(distances[name] for name in theirs), max(distances[name] for name in set(start) - theirs)


@pytest.mark.parametrize(
    ("rate", "expected"), [(None, 1e-2), (1e-4, 1e-4), (0.0, 0.0)], ids=["same", "own", "frozen"]
)
def test_pretrained_models_have_a_learning_rate_of_their_own(rate, expected, tmp_path, pretrained):
    values = options(tmp_path, pretrained, learning_rate=1e-2, pretrained_learning_rate=rate, max_steps=1)
    train(values, tmp_path / "run", display=SILENT)
    assert moved(tmp_path / "run", values) == pytest.approx((expected, 1e-2), rel=0.05)


def test_their_rate_follows_the_schedule(tmp_path, pretrained, monkeypatch):
    rates = []
    step = torch.optim.Adam.step

    def spy(optimizer, *arguments, **keywords):
        rates.append([group["lr"] for group in optimizer.param_groups])
        return step(optimizer, *arguments, **keywords)

    monkeypatch.setattr(torch.optim.Adam, "step", spy)
    schedule = {"schedule": "linear", "warmup_steps": 1, "learning_rate": 1e-2}
    values = options(tmp_path, pretrained, pretrained_learning_rate=1e-3, **schedule)
    train(values, tmp_path / "run", display=SILENT)
    own = [own for own, _ in rates]
    assert own == sorted(own, reverse=True)
    assert len({*own}) == 4
    assert [theirs for _, theirs in rates] == pytest.approx([rate / 10 for rate in own])


def test_a_shared_model_is_trained_once(tmp_path, pretrained):
    run_options = RunOptions.parse(options(tmp_path, pretrained, pretrained_learning_rate=1e-3))
    model = prepare(run_options).model
    groups = make_optimizer(run_options, model).param_groups
    trained = [parameter for group in groups for parameter in group["params"]]
    assert len(trained) == len({*trained}) == len([*model.parameters()])


class Interrupted(Display):
    """Presses Ctrl-C in the second step."""

    def advance(self, step, loss):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("rate", [1e-3, 0.0])
def test_an_interrupted_run_is_resumed_exactly(rate, tmp_path, pretrained):
    values = options(tmp_path, pretrained, {"pretrained_words": True}, pretrained_learning_rate=rate)
    train(values, tmp_path / "whole", display=SILENT)
    with pytest.raises(SavedInterrupt):
        train(values, tmp_path / "interrupted", display=Interrupted())
    resume(tmp_path / "interrupted", display=SILENT)
    assert remains(tmp_path / "interrupted") == remains(tmp_path / "whole")


def test_words_of_the_tokenizer_can_be_read_though_training_does_not_show_them(tmp_path, pretrained):
    known = prepare(RunOptions.parse(options(tmp_path, pretrained))).model.source
    more = prepare(RunOptions.parse(options(tmp_path, pretrained, {"pretrained_words": True}))).model.source
    assert {*more.tokens} == {*known.tokens} | WHOLE_WORDS
    assert not {*known.tokens} & WHOLE_WORDS
    assert not [piece for piece in PIECES if piece.startswith(("#", "[")) and piece in more.tokens]
    assert more.tokens[: len(SPECIALS)] == SPECIALS


def test_the_same_words_are_there_after_loading(tmp_path, pretrained):
    values = options(tmp_path, pretrained, {"pretrained_words": True}, max_steps=1)
    train(values, tmp_path / "run", display=SILENT)
    texas, river = load_model(tmp_path / "run").predict(["in texas", "the river"])
    assert texas.unknown == river.unknown == ()


def test_linked_entities_are_read_by_their_kind(tmp_path, pretrained, data_dir):
    settings = [
        "text.source={link_entities: true, pretrained_words: true}",
        "model.reorderer={shared_embeddings: true, encoder: {hidden_size: 8}}",
        f"model.head={{pretrained: {pretrained}, encoder: {{kind: none}}}}",
        f"task.data_dir={data_dir}",
    ]
    prepare(load_experiment("geoquery/exact", settings)).model.save_pretrained(tmp_path / "model")
    model = load_model(tmp_path / "model").eval()
    texts = [f"what rivers run through {name} ?" for name in ("texas", "south dakota", "river")]
    texas, dakota, river = model.predict(texts)
    assert (texas.tokens, texas.score) == (dakota.tokens, dakota.score)
    assert texas.score != river.score


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reorderer": {"shared_embeddings": False}}, "embeddings of its own"),
        ({"pretrained": None}, "embeddings of its own"),
        ({"text": {"pretrained_words": True, "min_frequency": 2}}, "Leave out text.source.min_frequency"),
        ({"text": {"pretrained_words": True, "vocab_size": 9}}, "vocab_size"),
        (
            {"text": {}, "pretrained": None, "pretrained_learning_rate": 1e-3},
            "no part of the model is pretrained",
        ),
    ],
)
def test_options_that_contradict_each_other(changes, message, tmp_path, pretrained):
    arguments = {"pretrained": pretrained, "text": {"pretrained_words": True}, **changes}
    with pytest.raises(ConfigError, match=message):
        RunOptions.parse(options(tmp_path, **arguments))


def test_targets_are_not_read_by_pretrained_models(tmp_path, pretrained):
    values = options(tmp_path, pretrained)
    values["text"]["target"] = {"pretrained_words": True}
    with pytest.raises(ConfigError, match=r"text\.target\.pretrained_words"):
        RunOptions.parse(values)
