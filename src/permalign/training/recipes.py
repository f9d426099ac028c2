"""Recipes: options of models and of training for the user's own data, and the choice between them.

A recipe is an experiment without a task. It is completed by what depends on the data: how long to train, and how many
output words a source word may generate.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil
from typing import Any, Literal

from permalign.errors import UsageError, unknown_name
from permalign.options.run import RunOptions
from permalign.tasks.base import Example
from permalign.tasks.data_profile import DataProfile, profile_data
from permalign.training.experiments import apply_settings, load_changed_values, merged
from permalign.training.tokenization import choose_tokens, tokenized
from permalign.yaml_files import parse_yaml

Recipe = Literal["auto", "ssnt", "exact", "labelled", "hard", "seq2seq", "tagging"]
RECIPES = ("ssnt", "exact", "labelled", "hard", "seq2seq", "tagging")

MAX_EXACT_LENGTH = 20
"""The length of sources and targets up to which ``auto`` sums exactly over all orders; the cost grows as n³m³."""

MAX_REORDERED_LENGTH = 60
"""The length of sources up to which ``auto`` reorders; the cost grows as n³."""

MONOTONE = 0.9
"""The share of neighbouring target tokens in source order from which ``auto`` does not reorder long sentences."""

MONOTONE_CHARACTERS = 0.7
"""The same for characters, whose estimated alignments are less reliable."""

SATISFYING = 90.0
"""The result on dev, in percent, below which another recipe is suggested."""

MANY_COPIES = 0.1
"""The share of target tokens that occur in their source from which the copy mechanism is mentioned."""

UPDATES = {"small": 3000, "large": 40_000}
"""About how many updates a run makes at most: that of a few thousand examples, and that of half a million."""


RESTARTS = {"restarts": 3, "restart_steps": 100}
"""The restarts of recipes that sum over all orders: some seeds end in a poor local optimum, which 100 steps show."""

WITH_RESTARTS = ("exact", "labelled")

_ABOUT_STEPS = tuple(
    f"training.{option}" for option in ("max_steps", "restart", "recombine", "warmup_steps", "stages")
)
"""Settings after which nothing is decided about restarts."""


@dataclass(frozen=True)
class Choice:
    """A recipe, and why it was chosen, as whole sentences."""

    recipe: str
    reason: str


def choose_recipe(profile: DataProfile, *, characters: bool = False) -> Choice:
    """Choose a recipe for data of this profile, whose tokens may be characters."""
    n, m = profile.source_length, profile.target_length
    if profile.equal_lengths == 1.0:
        return Choice(
            "tagging", "every target has as many tokens as its source, so each token can stand for one."
        )
    if characters and n <= MAX_REORDERED_LENGTH:
        recipe = "ssnt" if profile.monotone >= MONOTONE_CHARACTERS else "hard"
        order = "follow" if recipe == "ssnt" else "reorder"
        return Choice(
            recipe,
            f"targets {order} the characters of their sources, which mean little without their context.",
        )
    if max(n, m) <= MAX_EXACT_LENGTH:
        return Choice(
            "exact", f"sequences are short (at most {max(n, m)} tokens), so all orders can be summed over."
        )
    if profile.monotone >= MONOTONE:
        return Choice("ssnt", "targets follow the order of their sources, so nothing has to be reordered.")
    if n <= MAX_REORDERED_LENGTH:
        return Choice(
            "hard", "targets reorder their sources, and sequences are too long to sum over all orders."
        )
    return Choice("seq2seq", f"sources are too long to be reordered ({n} tokens).")


def suggest_recipe(options: RunOptions, score: float) -> str | None:
    """Advice for a run on the user's own data whose best result on dev leaves much to be desired; None for others.

    Sums over all orders can end in a local optimum in which words are not written from the words that they translate,
    with every seed. Whether they do on some data is not known before.
    """
    if score >= SATISFYING:
        return None
    is_hard = options.model.reorderer.objective == "hard" and options.model.head.kind == "ssnt"
    return (
        f"note: {score:.1f} on dev may be far from what is possible with this data. Try another recipe, such as "
        f"--recipe {'seq2seq' if is_hard else 'hard'}, or another --seed."
    )


def load_recipe(
    recipe: str, task: Mapping[str, Any], settings: Iterable[str] = ()
) -> tuple[RunOptions, list[str]]:
    """The options of a run on the user's own data, and lines that say what was chosen and why.

    Args:
        recipe: the name of a recipe, or ``auto``.
        task: the name and the options of the task.
        settings: changes to the options, ``OPTION=VALUE``.

    Raises:
        PermalignError: there is no such recipe, the data cannot be read, or a setting is invalid.
    """
    values, lines = load_recipe_values(recipe, task, settings)
    return RunOptions.parse(values), lines


def load_recipe_values(
    recipe: str, task: Mapping[str, Any], settings: Iterable[str] = (), *, restarts: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """The same as `load_recipe`, without the defaults of options, and without restarts where they are not wanted."""
    if recipe not in ("auto", *RECIPES):
        raise UsageError(unknown_name("recipe", recipe, ("auto", *RECIPES)))
    settings = list(settings)
    base = apply_settings({"task": dict(task)}, [setting for setting in settings if _is_about_data(setting)])
    examples = _training_examples(base)
    text, lines = _with_tokens(base.get("text", {}), examples)
    sources = tokenized([example.source for example in examples], text.get("source", {}))
    targets = tokenized([example.target for example in examples], text.get("target", {}))
    profile = profile_data(list(zip(sources, targets, strict=True)))
    lines.append(f"data: {profile}.")
    if recipe == "auto":
        choice = choose_recipe(profile, characters=_has_characters(text))
        recipe = choice.recipe
        lines.append(f"recipe: {recipe}, because {choice.reason}")
    values = merged(merged(_read(recipe), fit_to_data(recipe, profile)), {**base, "text": text})
    if restarts and recipe in WITH_RESTARTS and not any(map(_is_about_steps, settings)):
        values = merged(values, {"training": RESTARTS})
        lines.append(
            f"seeds: {RESTARTS['restarts']} are tried for {RESTARTS['restart_steps']} steps, and the best on dev is "
            "trained (--set training.restarts=1 trains one)."
        )
    values = apply_settings(values, settings)
    options = RunOptions.parse(values)
    if profile.overlap >= MANY_COPIES and not (options.model.head.copy_mechanism or _has_characters(text)):
        lines.append(
            "hint: if new sentences have names, numbers or other words that the training data does not, --set "
            "model.head.copy_mechanism=true lets the model copy them."
        )
    return values, [*lines, _describe_end(options)]


def load_experiment_values(
    name: str, task: Mapping[str, Any], settings: Iterable[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The options of an experiment on the user's own data, without defaults, and a line that says what was chosen.

    Only tokens are chosen, and only where neither the experiment nor a setting says what they are: the words of the
    data that the experiment was made for can be learned, but those of other data perhaps not.

    Args:
        name: the name of an experiment, or the path of a YAML file.
        task: the name and the options of the task.
        settings: changes to the options, ``OPTION=VALUE``.
    """
    of_task = [f"task.{option}={json.dumps(value)}" for option, value in task.items()]
    values = load_changed_values(name, [*of_task, *settings])
    text, lines = _with_tokens(values.get("text", {}), _training_examples(values))
    return {**values, "text": text}, lines


def _with_tokens(text: Mapping[str, Any], examples: Sequence[Example]) -> tuple[dict[str, Any], list[str]]:
    """Text options in which tokens are chosen where they are open, and a line that says why if they are not words."""
    open_sides = [side for side in ("source", "target") if not _chooses_tokens(text.get(side, {}))]
    if not open_sides:
        return dict(text), []
    tokens = choose_tokens(examples)
    chosen = {side: tokens.text.get(side, {}) for side in open_sides}
    return merged(chosen, text), [f"tokens: {tokens.reason}"] if tokens.reason else []


def fit_to_data(recipe: str, profile: DataProfile) -> dict[str, Any]:
    """Options that depend on the data: the length of training, and of segments."""
    batch_size = 16 if profile.examples < 5000 else 32 if profile.examples < 50_000 else 64
    updates_per_epoch = ceil(profile.examples / batch_size)
    updates = min(max(UPDATES["small"], 10 * updates_per_epoch), UPDATES["large"])
    training = {
        "batch_size": batch_size,
        "max_epochs": max(1, round(updates / updates_per_epoch)),
        "max_cpu_minutes": 30 if profile.examples < 5000 else 120,
        "evaluate_every": min(max(100, updates_per_epoch), updates // 20),
        "patience": 10,
        "max_dev_examples": 1000,
    }
    values: dict[str, Any] = {"training": training}
    if recipe in ("exact", "labelled"):
        values["model"] = {"head": {"max_segment_length": min(8, max(2, ceil(profile.growth)))}}
    return values


def _has_characters(text: Mapping[str, Any]) -> bool:
    """Whether outputs are written in characters."""
    return bool(text.get("target", {}).get("kind") == "characters")


def _chooses_tokens(side: Mapping[str, Any]) -> bool:
    """Whether options of a side say what its tokens are."""
    return any(option in side for option in ("kind", "pre_tokenizer", "tokenizer"))


def _is_about_data(setting: str) -> bool:
    return setting.startswith(("task.", "train=", "dev=", "text.", "seed="))


def _is_about_steps(setting: str) -> bool:
    return setting.startswith(("training=", *_ABOUT_STEPS))


def _training_examples(values: Mapping[str, Any]) -> Sequence[Example]:
    options = RunOptions.parse(values)
    task = options.make_task()
    options.require_split(task)
    return task.examples(options.train)


def _read(recipe: str) -> dict[str, Any]:
    text = (files("permalign") / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
    values: dict[str, Any] = parse_yaml(text)
    return values


def _describe_end(options: RunOptions) -> str:
    training = options.training
    ends = []
    if training.max_steps is not None:
        ends.append(f"{training.max_steps:,} steps")
    if training.max_epochs is not None:
        ends.append(f"{training.max_epochs:,} epochs")
    if training.max_cpu_minutes is not None:
        ends.append(f"{training.max_cpu_minutes:g} CPU minutes")
    if training.patience is not None:
        ends.append(f"{training.patience} evaluations without improvement")
    return f"end: after {', or '.join(ends)}, whichever comes first (--set training.max_epochs=N changes it)."
