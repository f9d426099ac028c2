"""The models that come with the package: they are found by name, intact, small, and give the right answers."""

import os
import shutil

import pytest
from typer.testing import CliRunner

from permalign import Transducer, load_model
from permalign.cli.app import app
from permalign.cli.predict import open_model
from permalign.models.bundled import bundled_folder, bundled_names, find_model_folder
from permalign.reproduction.bundle import BUNDLES
from permalign.training.experiments import load_experiment, load_saved_options
from permalign.training.trained_run import DecodingSettings, TrainedRun

ANSWERS = {
    "arithmetic": {
        "( 2 * ( 8 - 5 ) )": "( 2 ( 8 5 - ) * )",
        "( 2 * ( 8 + ( 1 + ( 0 - 5 ) ) ) )": "( 2 ( 8 ( 1 ( 0 5 - ) + ) + ) * )",
    },
    "dates": {
        "12 march 2021": "2021 - 03 - 12",
        "march 12 , 2021": "2021 - 03 - 12",
        "the 3rd of may 1999": "1999 - 05 - 03",
        "friday , 12 march 2021": "2021 - 03 - 12",
        "3 / 12 / 2021": "2021 - 03 - 12",
        "12 . 3 . 2021": "2021 - 03 - 12",
        "31 december 1945": "1945 - 12 - 31",  # a year that is copied
    },
    "scan-sp": {
        "jump twice after walk around left": "after twice jump walk around left",
        "walk left and run thrice": "and walk left thrice run",
    },
}


def permalign(*arguments, **options):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def test_the_models_are_those_that_can_be_trained_again():
    assert bundled_names() == tuple(sorted(BUNDLES)) == tuple(ANSWERS)
    for name, bundle in BUNDLES.items():
        assert load_saved_options(bundled_folder() / name / "config.yaml") == load_experiment(
            bundle.experiment
        )


@pytest.mark.parametrize("name", ANSWERS)
def test_a_model_gives_the_right_answers(name):
    model = load_model(name)
    predicted = model.predict(list(ANSWERS[name]))
    assert [prediction.text for prediction in predicted] == list(ANSWERS[name].values())
    offered = (bundled_folder() / name / "examples.txt").read_text().splitlines()
    assert set(ANSWERS[name]) & set(offered)
    unknown = [sentence for sentence in offered if not {*sentence.split()} <= {*model.source.tokens}]
    assert {*unknown} <= {*ANSWERS[name]}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_model_is_right_on_unseen_examples(name):
    run = TrainedRun(name)
    for split in ("iid/test", "year/test") if name == "dates" else ("len/test",):
        examples = run.task.examples(split)[:100]
        predicted = run.model.predict([example.source for example in examples])
        assert [prediction.tokens for prediction in predicted] == [example.target for example in examples]


def test_the_tree_of_a_date_is_right():
    prediction = Transducer.from_pretrained("dates").predict(["march 12 , 2021"], explain=True)[0]
    reordered = [word for word in prediction.explanation.reordered if word != ","]
    assert reordered == ["2021", "march", "12"]
    root = prediction.explanation.derivation.tree
    assert root.rule == "I"  # the year changes places with all that is before it


def test_the_models_are_small():
    size = sum(path.stat().st_size for path in bundled_folder().rglob("*") if path.is_file())
    assert size < 500_000


def test_a_damaged_model_is_named(tmp_path):
    shutil.copytree(bundled_folder() / "dates", tmp_path / "copy")
    weights = tmp_path / "copy" / "model" / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    result = permalign("explain", tmp_path / "copy", "12 march 2021")
    assert result.exit_code == 1
    assert "model.safetensors" in result.output


def test_a_run_of_the_user_is_preferred(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").mkdir()
    assert find_model_folder("dates") == bundled_folder() / "dates"  # a folder without a model is no run
    shutil.copytree(bundled_folder() / "arithmetic", tmp_path / "dates", dirs_exist_ok=True)
    assert load_model("dates").predict(["( 1 + 2 )"])[0].text == "( 1 2 + )"
    assert "dates is taken for the folder ./dates" in caplog.text


def test_the_commands_take_the_name_of_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explained = permalign("explain", "dates", "12 march 2021")
    assert "12 march 2021 → 2021 - 03 - 12" in explained.stdout
    model, defaults, _ = open_model("dates", None, None, None)
    assert model.predict(["12 march 2021"], beam=defaults.beam)[0].text == "2021 - 03 - 12"
    assert os.listdir(tmp_path) == []


def test_predictions_are_not_written_into_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = TrainedRun("dates")
    monkeypatch.setattr(run.task, "examples", lambda split, all=run.task.examples: all(split)[:4])
    paths = run.write("comb/test", DecodingSettings(), run.evaluate("comb/test", DecodingSettings()))
    assert [str(path) for path in paths] == [
        f"predictions/dates/comb/test.{kind}" for kind in ("jsonl", "json")
    ]


def test_models_are_listed_with_a_sentence_to_try():
    result = permalign("models")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:4]] == list(bundled_names())
    assert '"12 march 2021"' in result.stdout


@pytest.mark.parametrize("name", ANSWERS)
def test_a_card_says_where_a_model_comes_from(name):
    card = permalign("models", name).stdout
    for words in (
        f"`permalign train {BUNDLES[name].experiment}`",
        "Apache-2.0, generated by permalign",
        *BUNDLES[name].splits,
        BUNDLES[name].limits,
        "exact match",
    ):
        assert words in card


def test_a_folder_without_a_card_is_an_error(tmp_path):
    result = permalign("models", tmp_path)
    assert result.exit_code == 1
    assert "has no card" in result.output
