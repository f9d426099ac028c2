"""Recipes: options of models and of training for the user's own data, and the choice between them.

A recipe is an experiment without a task. It is completed by what depends on the data: how long to train, and how many
output words a source word may generate.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from inspect import signature
from math import ceil
from typing import Any, Literal

from permalign.errors import ConfigError, UsageError, unknown_name
from permalign.options.run import RunOptions
from permalign.plugins import HEADS
from permalign.tasks.base import Example
from permalign.tasks.data_profile import DataProfile, profile_data
from permalign.training.experiments import apply_settings, load_changed_values, merged, parse_setting
from permalign.training.recipe_trials import MIN_DEV_EXAMPLES, MIN_STEPS, TRIAL_STEPS
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

MIN_COPIED_WORDS = 10
"""How many different words have to be copied before new ones are expected, so that the model learns to copy them."""

MANY_WITH_COPIES = 0.25
"""The share of training examples that must have such a word."""

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


def other_recipes(suggested: str, profile: DataProfile, *, characters: bool = False) -> tuple[str, ...]:
    """The other recipes that may suit data of this profile.

    Which recipe learns the data best is not known before it is tried; but what would take too long is.
    """
    longest = max(profile.source_length, profile.target_length)
    fits = {
        "exact": longest <= MAX_EXACT_LENGTH and not characters,
        "hard": profile.source_length <= MAX_REORDERED_LENGTH,
        "ssnt": True,
    }
    return tuple(name for name, is_possible in fits.items() if is_possible and name != suggested)


def suggest_recipe(
    options: RunOptions, score: float, tried: Sequence[str] = (), *, best_at_end: bool = False
) -> str | None:
    """Advice for a run on the user's own data whose best result on dev leaves much to be desired; None for others.

    Sums over all orders can end in a local optimum in which words are not written from the words that they translate,
    with every seed. Whether they do on some data is not known before.

    Args:
        options: the options of the run.
        score: its best result on dev.
        tried: the recipes that were tried before.
        best_at_end: whether the last evaluation was the best one, so that more steps may help.
    """
    if score >= SATISFYING:
        return None
    is_hard = options.model.reorderer.objective == "hard" and options.model.head.kind == "ssnt"
    recipe = "seq2seq" if is_hard or "hard" in tried else "hard"
    return (
        f"note: {score:.1f} on dev may be far from what is possible with this data. "
        + ("The last evaluation was the best one: train longer, or try " if best_at_end else "Try ")
        + f"another recipe, such as --recipe {recipe}, or another --seed."
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
    candidates, lines = load_candidates(recipe, task, settings, restarts=restarts, tries=False)
    return next(iter(candidates.values())), lines


def load_candidates(
    recipe: str,
    task: Mapping[str, Any],
    settings: Iterable[str] = (),
    *,
    restarts: bool = True,
    tries: bool = True,
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The options of all recipes to try, by name and without defaults, and lines that say what was chosen and why.

    Only ``auto`` tries more than one recipe, and only if dev and the run are large enough to compare them.

    Args:
        recipe: the name of a recipe, or ``auto``.
        task: the name and the options of the task.
        settings: changes to the options, ``OPTION=VALUE``.
        restarts: whether a recipe may try several seeds.
        tries: whether ``auto`` may try several recipes; otherwise it chooses by the properties of the data alone.
    """
    if recipe not in ("auto", *RECIPES):
        raise UsageError(unknown_name("recipe", recipe, ("auto", *RECIPES)))
    settings = list(settings)
    base = apply_settings({"task": dict(task)}, [setting for setting in settings if _is_about_data(setting)])
    examples, num_dev = _read_examples(base)
    text, lines, copies = _with_tokens(
        base.get("text", {}),
        examples,
        may_copy=_may_copy(settings),
        reads_words=_is_pretrained(_changes(settings)),
    )
    sources = tokenized([example.source for example in examples], text.get("source", {}))
    targets = tokenized([example.target for example in examples], text.get("target", {}))
    profile = profile_data(list(zip(sources, targets, strict=True)))
    lines.append(f"data: {profile}.")
    if not copies and _copies_words(text, profile) and _may_copy(settings):
        copies = True
        lines.append(
            f"copies: words that were never seen are copied if need be, because {profile.copied_words} different words "
            f"of sources, in {profile.with_copies:.0%} of the examples, are nearly always in the target as well "
            "(--set model.head.copy_mechanism=false copies none)."
        )

    def tries_seeds(name: str) -> bool:
        return restarts and name in WITH_RESTARTS and not any(map(_is_about_steps, settings))

    def values_of(name: str) -> dict[str, Any]:
        values = merged(merged(_read(name), fit_to_data(name, profile)), {**base, "text": text})
        if copies:
            values = merged(values, {"model": {"head": {"copy_mechanism": True}}})
        if tries_seeds(name):
            values = merged(values, {"training": RESTARTS})
        return apply_settings(values, settings)

    if recipe == "auto":
        choice = choose_recipe(profile, characters=_has_characters(text))
        can_try = tries and num_dev >= MIN_DEV_EXAMPLES and not any(map(_names_parts, settings))
        others = other_recipes(choice.recipe, profile, characters=_has_characters(text)) if can_try else ()
        candidates = _fitting_candidates((choice.recipe, *others), values_of, profile.examples)
        lines += _describe_candidates(choice, list(candidates))
    else:
        candidates = {recipe: values_of(recipe)}
    first, *others_to_try = candidates
    options = RunOptions.parse(candidates[first])
    if tries_seeds(first) and not others_to_try:
        lines.append(
            f"seeds: {RESTARTS['restarts']} are tried for {RESTARTS['restart_steps']} steps, and the best on dev is "
            "trained (--set training.restarts=1 trains one)."
        )
    if profile.overlap >= MANY_COPIES and not (options.model.head.copy_mechanism or _has_characters(text)):
        lines.append(
            "hint: if new sentences have names, numbers or other words that the training data does not, --set "
            "model.head.copy_mechanism=true lets the model copy them."
        )
    return candidates, [*lines, _describe_end(options)]


def _fitting_candidates(
    names: Sequence[str], values_of: Callable[[str], dict[str, Any]], num_examples: int
) -> dict[str, dict[str, Any]]:
    """The options of recipes by name, without recipes that the settings do not fit; one if the run is short.

    Raises:
        ConfigError: the settings fit no recipe.
    """
    candidates: dict[str, dict[str, Any]] = {}
    errors: list[ConfigError] = []
    for name in names:
        try:
            candidates[name] = values_of(name)
        except ConfigError as error:
            errors.append(error)
            continue
        if _num_steps(RunOptions.parse(candidates[name]), num_examples) < MIN_STEPS:
            break
    if not candidates:
        raise errors[0]
    return candidates


def _describe_candidates(choice: Choice, names: Sequence[str]) -> list[str]:
    """Lines that say which recipe was chosen, or which are tried, and why."""
    if len(names) == 1:
        return [f"recipe: {names[0]}" + (f", because {choice.reason}" if names[0] == choice.recipe else ".")]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    return [
        f"recipe: {choice.recipe} is suggested by the data, because {choice.reason}",
        f"trials: {listed} are tried for {TRIAL_STEPS} steps each, and the one whose outputs on dev are most similar "
        f"to their targets is trained (--recipe {names[0]} trains that one without a trial).",
    ]


def _num_steps(options: RunOptions, num_examples: int) -> int:
    """About how many steps a run has at most."""
    training = options.training
    steps_per_epoch = ceil(num_examples / (training.batch_size * training.gradient_accumulation_steps))
    limits = (training.max_steps, training.max_epochs and training.max_epochs * steps_per_epoch)
    return min(limit for limit in limits if limit is not None)


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
    text, lines, _ = _with_tokens(
        values.get("text", {}), _read_examples(values)[0], reads_words=_is_pretrained(values)
    )
    return {**values, "text": text}, lines


def _with_tokens(
    text: Mapping[str, Any], examples: Sequence[Example], *, may_copy: bool = False, reads_words: bool = False
) -> tuple[dict[str, Any], list[str], bool]:
    """Text options in which tokens are chosen where they are open.

    Args:
        text: the text options so far.
        examples: the training examples.
        may_copy: whether the model may get a copy mechanism.
        reads_words: whether the model reads sources as words and tokenizes them itself.

    Returns:
        The options; a line that says why if tokens are not plain words; and whether some have to be copied.
    """
    sides = ("target",) if reads_words else ("source", "target")
    open_sides = [side for side in sides if not _chooses_tokens(text.get(side, {}))]
    if not open_sides:
        return dict(text), [], False
    tokens = choose_tokens(examples, may_copy=may_copy and len(open_sides) == 2)
    chosen = {side: tokens.text.get(side, {}) for side in open_sides}
    return merged(chosen, text), [f"tokens: {tokens.reason}"] if tokens.reason else [], tokens.copies


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
    # text.source.pretrained_words does not fit without the settings of the model
    about_model = setting.startswith("text.source.pretrained_words")
    return setting.startswith(("task.", "train=", "dev=", "text.", "seed=")) and not about_model


def _is_about_steps(setting: str) -> bool:
    return setting.startswith(("training=", *_ABOUT_STEPS))


def _copies_words(text: Mapping[str, Any], profile: DataProfile) -> bool:
    """Whether new sentences may have words that have to be copied, because so many different ones are."""
    are_words = all(text.get(side, {}).get("kind", "words") == "words" for side in ("source", "target"))
    return are_words and profile.copied_words >= MIN_COPIED_WORDS and profile.with_copies >= MANY_WITH_COPIES


def _may_copy(settings: Sequence[str]) -> bool:
    """Whether no setting forbids that words are copied, or chooses a head that cannot copy."""
    model = _changes(settings).get("model", {})
    head = model.get("head", {}) if isinstance(model, Mapping) else None
    if not isinstance(head, Mapping) or head.get("copy_mechanism") is False:
        return False
    kind = head.get("kind", "segments")
    return kind not in HEADS.names() or "copy_mechanism" in signature(HEADS.load(kind)).parameters


def _changes(settings: Iterable[str]) -> Mapping[str, Any]:
    """The options that settings change, which need not be valid by themselves."""
    changes: Mapping[str, Any] = {}
    for setting in settings:
        changes = merged(changes, parse_setting(setting))
    return changes


def _is_pretrained(values: Mapping[str, Any]) -> bool:
    """Whether a part of the model is a pretrained one, which reads words and tokenizes them itself."""
    model = values.get("model", {})
    parts = [model.get(part, {}) for part in ("head", "reorderer")] if isinstance(model, Mapping) else []
    return any(isinstance(part, Mapping) and bool(part.get("pretrained")) for part in parts)


def _names_parts(setting: str) -> bool:
    """Whether a setting says of which parts the model consists, so that recipes would not differ in them."""
    path, _, _ = setting.partition("=")
    return path in {
        "model",
        *(
            f"model.{part}{option}"
            for part in ("head", "reorderer")
            for option in ("", ".kind", ".objective")
        ),
    }


def _read_examples(values: Mapping[str, Any]) -> tuple[Sequence[Example], int]:
    """The training examples, and the number of dev examples."""
    options = RunOptions.parse(values)
    task = options.make_task()
    options.require_split(task)
    return task.examples(options.train), len(task.examples(options.dev))


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
