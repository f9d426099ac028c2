"""Old names of options are translated in saved files; in configs that users write, the new names are suggested."""

import json
import logging
from pathlib import Path

import pytest
import yaml

from permalign.errors import ConfigError
from permalign.options.model import ModelOptions
from permalign.options.renames import (
    EXPERIMENTS,
    OPTIONS,
    log_translation,
    rename_parameters,
    translate_options,
    translate_settings,
)
from permalign.options.run import RunOptions
from permalign.training.experiments import experiment_names, load_experiment

SAVED = Path(__file__).parents[1] / "data" / "saved_before_renames"


def test_translated_options_keep_their_values():
    saved = yaml.safe_load((SAVED / "run" / "config.yaml").read_text())
    before = json.dumps(saved)
    translated, changes = translate_options(saved)
    options = RunOptions.parse(translated)
    assert json.dumps(saved) == before
    assert "model.back.head.longest_segment -> model.inverse.head.max_segment_length" in changes
    model, training = options.model, options.training
    assert model.ensemble_size == 2
    assert (model.reorderer.embedding_dim, model.reorderer.scorer_hidden_size) == (2, 2)
    assert model.reorderer.encoder.model_dump(exclude_defaults=True) == {
        "kind": "prefix_sum",
        "hidden_size": 4,
        "num_sums": 1,
        "dropout": 0.2,
    }
    assert (model.reorderer.dropout, model.reorderer.score_straight_rules) == (0.2, False)
    assert model.head.encoder.model_dump(exclude_defaults=True) == {"kind": "window", "hidden_size": 2}
    assert (model.inverse.weight, model.inverse.reorderer.num_labels) == (0.5, 2)
    assert model.inverse.reorderer.encoder.dropout == 0.2
    assert training.model_dump(exclude_defaults=True) == {
        "max_steps": 8,
        "max_cpu_minutes": 10.0,
        "batch_size": 4,
        "max_tokens": 60,
        "gradient_accumulation_steps": 2,
        "curriculum_epochs": 1,
        "overlong_targets": "skip",
        "optimizer": "adamw",
        "learning_rate": 0.01,
        "weight_decay": 0.01,
        "schedule": "plateau",
        "warmup_steps": 2,
        "plateau_patience": 1,
        "clip_grad_norm": 1.0,
        "reorderer_first": {"steps": 3},
        "stages": ({"steps": 2, "objective": "exact"},),
        "evaluate_every": 4,
        "max_dev_examples": 4,
        "log_every": 2,
    }
    assert options.text.source.vocab_size == 6


@pytest.mark.parametrize("name", experiment_names())
def test_present_names_are_not_changed(name):
    values = load_experiment(name).model_dump(mode="json")
    assert translate_options(values) == (values, [])
    assert translate_options(values["model"]) == (values["model"], [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("model.together=3", ["model.ensemble_size=3"]),
        ("model.back.weight=0.5", ["model.inverse.weight=0.5"]),
        ("model.back.head.longest_segment=3", ["model.inverse.head.max_segment_length=3"]),
        ("model.reorderer.encoder=sums", ["model.reorderer.encoder.kind=prefix_sum"]),
        ("model.reorderer.straight=free", ["model.reorderer.score_straight_rules=false"]),
        ("model.reorderer.width=128", ["model.reorderer.encoder.hidden_size=128"]),
        ("model.reorderer.dropout=.3", ["model.reorderer.dropout=.3", "model.reorderer.encoder.dropout=.3"]),
        (
            "model.reorderer={width: 8, dropout: 0.5}",
            ['model.reorderer={"encoder": {"hidden_size": 8, "dropout": 0.5}, "dropout": 0.5}'],
        ),
        ("training.unwritable=leave_out", ["training.overlong_targets=skip"]),
        ("training={steps: 5, keep: 2}", ['training={"max_steps": 5, "keep_checkpoints": 2}']),
        ("training.learning_rate=1e-3", ["training.learning_rate=1e-3"]),
        ("training.stages=[{steps: 3, objective: soft}]", ["training.stages=[{steps: 3, objective: soft}]"]),
        ("text.source.names=true", ["text.source.link_entities=true"]),
        ("task.longest=60", ["task.max_length=60"]),
        ("dev=len/dev", ["dev=len/dev"]),
    ],
)
def test_settings_are_translated(old, new):
    translated = translate_settings([old])
    assert [setting.partition("=")[0] for setting in translated] == [
        setting.partition("=")[0] for setting in new
    ]
    values = [
        [yaml.safe_load(setting.partition("=")[2]) for setting in settings] for settings in (translated, new)
    ]
    assert values[0] == values[1]


def test_renamed_experiments_exist():
    assert set(EXPERIMENTS.values()) <= set(experiment_names())
    with pytest.raises(ConfigError, match="did you mean 'geoquery/exact-reranked'"):
        load_experiment("geoquery/both-ways")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"together": 3}, "unknown option together; did you mean ensemble_size?"),
        ({"back": {"weight": 1.0}}, "unknown option back; did you mean inverse?"),
        (
            {"head": {"longest_phrase": 2}},
            "unknown option head.longest_phrase; did you mean head.max_phrase_length?",
        ),
        (
            {"reorderer": {"width": 2}},
            "unknown option reorderer.width; did you mean reorderer.encoder.hidden_size?",
        ),
        ({"reorderer": {"encoder": "sums"}}, "reorderer.encoder is 'sums', but must be a mapping"),
    ],
)
def test_an_old_name_in_a_config_is_an_error_that_suggests_the_new_one(values, message):
    with pytest.raises(ConfigError) as caught:
        ModelOptions.parse(values)
    assert str(caught.value).startswith(message)


def test_the_new_name_is_suggested_for_every_old_option_of_training():
    for old, new in OPTIONS["training"].items():
        with pytest.raises(ConfigError, match=f"did you mean training.{new}?"):
            RunOptions.parse({"task": {"name": "arithmetic"}, "training": {old: 1}})


def test_a_translation_is_logged_once(caplog):
    with caplog.at_level(logging.WARNING, "permalign"):
        for _ in range(2):
            log_translation("some/config.yaml", ["a -> b", "c -> d"])
        log_translation("another/config.yaml", [])
    (record,) = caplog.records
    assert "some/config.yaml" in record.getMessage()
    assert "a -> b" in record.getMessage()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["embeddings.weight", "head.first"], ["embeddings.weight", "head.first"]),
        (
            ["reorderer.reader.encoder.lstm.bias", "reorderer.rules", "reorderer.root"],
            [
                "reorderer.source_encoder.encoder.lstm.bias",
                "reorderer.grammar.rules",
                "reorderer.grammar.root",
            ],
        ),
        (
            ["head.keys.weight", "head.combine.weight", "head.softmax.bias"],
            ["head.context.keys.weight", "head.context.combine.weight", "head.softmax.bias"],
        ),
        (["head.keys.weight", "head.meanings.weight"], ["head.keys.weight", "head.meanings.weight"]),
        (
            [
                "members.0.direct.head.attention.keys.weight",
                "members.1.head.word_scores.attention.keys.weight",
            ],
            [
                "members.0.direct.head.context.attention.keys.weight",
                "members.1.head.word_scores.context.attention.keys.weight",
            ],
        ),
        (["head.first", "back.reorderer.rules"], ["direct.head.first", "inverse.reorderer.grammar.rules"]),
        (["head.first", "others.0.head.first"], ["members.0.head.first", "members.1.head.first"]),
        (
            ["head.first", "back.head.first", "others.1.head.first", "others.1.back.head.first"],
            [f"members.{member}.{part}.head.first" for member in (0, 2) for part in ("direct", "inverse")],
        ),
    ],
)
def test_parameters_are_renamed(old, new):
    renamed = rename_parameters(dict.fromkeys(old))
    assert list(renamed) == new
    assert list(rename_parameters(renamed)) == new
