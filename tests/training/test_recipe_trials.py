"""Recipes that are tried on the user's own data before one of them is trained."""

import json
import os
import signal

import pytest
import yaml
from tests.training.small_run import SILENT, options, write_data

from permalign.errors import ConfigError
from permalign.options.run import RunOptions
from permalign.training.launch import resume, train, try_candidates
from permalign.training.progress_display import Display
from permalign.training.recipe_trials import choose_by_similarity, describe_choice, trial_options
from permalign.training.recipes import load_candidates, suggest_recipe
from permalign.training.run_directory import RunDirectory
from permalign.training.tokenization import choose_tokens


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("source\ttarget\n" + "".join(f"a b {i % 7}\tB A\n" for i in range(120)))
    return {"name": "own", "path": str(path)}


@pytest.mark.parametrize(
    ("recipe", "settings", "expected"),
    [
        ("auto", [], ["exact", "hard", "ssnt"]),
        ("auto", ["text.source.kind=words", "seed=3"], ["exact", "hard", "ssnt"]),
        ("auto", ["text.source.kind=characters", "text.target.kind=characters"], ["hard", "ssnt"]),
        ("hard", [], ["hard"]),
        ("auto", ["training.max_steps=999"], ["exact"]),
        ("auto", ["training.max_steps=1000"], ["exact", "hard", "ssnt"]),
        ("auto", ["training.max_epochs=9"], ["exact"]),
        ("auto", ["model.head.kind=segments"], ["exact"]),
        ("auto", ["training.reorderer_first.steps=5"], ["exact", "hard"]),
        ("auto", ["model.head.max_phrase_length=2"], ["exact"]),
        ("auto", ["task.dev_size=9"], ["exact"]),
    ],
)
def test_what_is_tried_depends_on_the_data_and_the_settings(pairs, recipe, settings, expected):
    candidates, lines = load_candidates(recipe, pairs, settings)
    assert list(candidates) == expected
    assert any(line.startswith("trials: ") for line in lines) == (len(expected) > 1)
    assert any(line.startswith("recipe: ") for line in lines) == (recipe == "auto")
    assert all(RunOptions.parse(values).task["path"] == pairs["path"] for values in candidates.values())
    assert list(load_candidates(recipe, pairs, settings, tries=False)[0]) == expected[:1]


def test_a_setting_that_fits_no_recipe_is_an_error(pairs):
    with pytest.raises(ConfigError, match=r"unknown option model\.head\.wings"):
        load_candidates("auto", pairs, ["model.head.wings=2"])


def test_another_recipe_must_be_clearly_better_than_the_one_that_the_data_suggests():
    assert choose_by_similarity({"exact": 50.0, "hard": 51.0}) == "exact"
    assert choose_by_similarity({"exact": 50.0, "hard": 51.1}) == "hard"
    assert choose_by_similarity({"exact": 50.0, "hard": 80.0, "ssnt": 90.0}) == "ssnt"
    assert describe_choice("exact", {"exact": 50.0, "hard": 51.0}).endswith("Less than 1 % does not count.")


class Interrupting(Display):
    """Sends Ctrl-C after a number of steps, and remembers what was said."""

    def __init__(self, after=0):
        self.after, self.said = after, []

    def advance(self, step, loss):
        self.after -= 1
        if self.after == 0:
            os.kill(os.getpid(), signal.SIGINT)

    def say(self, message):
        self.said.append(message)


@pytest.fixture
def candidates(tmp_path):
    """Two models that differ in their learning rate and in the number of restarts."""
    path = write_data(tmp_path)
    slow = options(path, stages=[], restarts=2, restart_steps=7)
    fast = options(path, stages=[], learning_rate=0.02)
    return {"slow": RunOptions.parse(slow), "fast": RunOptions.parse(fast)}


def test_the_best_recipe_is_trained_and_stays_the_choice_of_the_run(tmp_path, candidates, monkeypatch):
    monkeypatch.setattr("permalign.training.recipe_trials.TRIAL_STEPS", 6)
    monkeypatch.setattr(
        "permalign.training.launch._similarity_on_dev",
        lambda run: {"slow": 40.0, "fast": 60.0}[run.path.name],
    )
    run = tmp_path / "run"
    first = Interrupting(after=8)
    with pytest.raises(KeyboardInterrupt):  # in the second trial
        train(candidates["slow"], run, candidates=candidates, display=first)
    assert first.said[-1] == "trying the recipe fast (2 of 2)"
    assert list(RunDirectory(run).candidates()) == ["slow", "fast"]
    assert yaml.safe_load((run / "config.yaml").read_text())["training"]["learning_rate"] == 0.01

    second = Interrupting()
    assert resume(run, display=second).step == 12
    assert "recipe: fast; after 6 steps, outputs on dev are similar to their targets by 40.0 % (slow), " in (
        " ".join(second.said)
    )
    assert {path.name for path in (run / "attempts").iterdir()} == {"slow", "fast"}  # and no further seeds
    facts = json.loads((run / "environment.json").read_text())
    assert (facts["recipe"], facts["similarities"]) == ("fast", {"slow": 40.0, "fast": 60.0})
    assert RunDirectory(run).read_options().training.learning_rate == 0.02
    train(candidates["fast"], tmp_path / "alone", display=SILENT)
    weights = "model/model.safetensors"
    assert (run / weights).read_bytes() == (tmp_path / "alone" / weights).read_bytes()

    third = Interrupting()
    assert resume(run, display=third).step == 12
    assert not any("trying" in line for line in third.said)


def test_a_run_that_was_killed_while_it_chose_chooses_the_same_again(tmp_path, candidates):
    run = RunDirectory(tmp_path / "run")
    values = {name: of.model_dump(mode="json") for name, of in candidates.items()}
    run.create(candidates["slow"], facts={"candidates": values})
    run._write_config(candidates["fast"])  # the first half of `choose`
    assert run.candidates() == candidates
    run.choose(candidates["fast"], recipe="fast")
    assert (run.candidates(), run.facts()["recipe"]) == ({}, "fast")
    assert run.read_options() == candidates["fast"]


def test_a_recipe_that_cannot_be_trained_on_the_data_is_left_out(tmp_path, candidates, monkeypatch):
    monkeypatch.setattr("permalign.training.recipe_trials.TRIAL_STEPS", 2)
    broken = candidates["slow"].model_copy(update={"dev": "nowhere"})
    said: list[str] = []
    found = try_candidates(
        {"broken": broken, "fast": candidates["fast"]}, tmp_path / "t", said.append, SILENT
    )
    assert list(found) == ["fast"]
    assert 0.0 <= found["fast"] <= 100.0
    assert said[1].startswith("the recipe broken cannot be trained on this data: dev: ")
    with pytest.raises(ConfigError, match="nowhere"):
        try_candidates({"broken": broken}, tmp_path / "t", said.append, SILENT)


def test_a_trial_is_short_and_evaluates_once(candidates):
    training = trial_options(candidates["slow"]).training
    assert (training.max_steps, training.evaluate_every, training.max_epochs) == (200, 200, None)
    assert (training.restarts, training.max_dev_examples, training.max_cpu_minutes) == (1, 200, None)
    few = candidates["slow"].training.model_copy(update={"max_dev_examples": 50})
    assert (
        trial_options(candidates["slow"].model_copy(update={"training": few})).training.max_dev_examples == 50
    )


def test_a_recipe_that_was_tried_is_not_suggested(candidates):
    exact = RunOptions.parse({"task": {"name": "arithmetic"}})
    assert "--recipe hard" in suggest_recipe(exact, 50.0, ["exact"])
    assert "--recipe seq2seq" in suggest_recipe(exact, 50.0, ["exact", "hard"])
    assert "train longer, or try another recipe" in suggest_recipe(exact, 50.0, best_at_end=True)
    assert suggest_recipe(exact, 95.0, ["exact"]) is None


def test_rare_words_that_sources_and_targets_share_are_copied(tmp_path):
    path = tmp_path / "names.tsv"
    names = [f"N{i:03d}x" for i in range(120)]
    path.write_text("".join(f"call {name} now\tphone = {name}\n" for name in names))
    task = {"name": "own", "path": str(path)}
    candidates, lines = load_candidates("auto", task)
    assert lines[0] == (
        "tokens: words that are copied if need be (model.head.copy_mechanism), because 100% of the training targets "
        "have a word that occurs in no other, but only 0% one that is not in their source."
    )
    for values in candidates.values():
        parsed = RunOptions.parse(values)
        assert parsed.model.head.copy_mechanism
        assert parsed.text.source.is_plain
    assert not any(line.startswith("hint") for line in lines)
    candidates, _ = load_candidates("auto", task, ["model.head.copy_mechanism=false"])
    assert not any(RunOptions.parse(values).text.source.is_plain for values in candidates.values())


def test_words_that_targets_do_not_share_cannot_be_copied():
    from permalign.tasks.base import Example

    examples = [Example((f"N{i}", "x"), (f"M{i}",), str(i)) for i in range(100)]
    assert choose_tokens(examples, may_copy=True) == choose_tokens(examples)
