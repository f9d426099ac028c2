"""Old names of options, experiments and parameters, so that saved models and runs can still be loaded.

Only saved files are translated. In a config that a user writes, an old name is an error, which suggests the new name.

>>> options, changes = translate_options({"head": {"kind": "ssnt", "hidden": 64}, "together": 3})
>>> options
{'head': {'kind': 'ssnt', 'hidden_size': 64}, 'ensemble_size': 3}
>>> changes
['head.hidden -> head.hidden_size', 'together -> ensemble_size']
>>> translate_settings(["model.reorderer.encoder=sums", "training.unwritable=leave_out"])
['model.reorderer.encoder.kind=prefix_sum', 'training.overlong_targets=skip']
"""

import json
import logging
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from permalign.yaml_files import parse_yaml

Tensor = TypeVar("Tensor")  # not the class of torch, because options are read without importing torch

_ENCODER = {
    "width": "hidden_size",
    "layers": "num_layers",
    "attention_heads": "num_heads",
    "sums": "num_sums",
}

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "run": {},
    "task": {"longest": "max_length", "shortest": "min_length", "longest_in_train": "max_train_length"},
    "text": {},
    "side": {"minimum_count": "min_frequency", "size": "vocab_size", "names": "link_entities"},
    "model": {"back": "inverse", "together": "ensemble_size"},
    "reorderer": {
        "embedding": "embedding_dim",
        "encoder": "encoder.kind",
        **{old: f"encoder.{new}" for old, new in _ENCODER.items()},
        "hidden": "scorer_hidden_size",
        "straight": "score_straight_rules",
        "samples": "num_samples",
        "labels": "num_labels",
        "label_scale": "label_init_std",
        "iterations": "num_iterations",
        "reach": "window_radius",
    },
    "head": {
        "embedding": "embedding_dim",
        "hidden": "hidden_size",
        "layers": "num_layers",
        "longest_segment": "max_segment_length",
        "longest_phrase": "max_phrase_length",
    },
    "encoder": {**_ENCODER, "reach": "window_radius"},
    "training": {
        "steps": "max_steps",
        "epochs": "max_epochs",
        "processor_minutes": "max_cpu_minutes",
        "token_budget": "max_tokens",
        "accumulate": "gradient_accumulation_steps",
        "short_to_long": "curriculum_epochs",
        "unwritable": "overlong_targets",
        "optimiser": "optimizer",
        "warmup": "warmup_steps",
        "plateau": "plateau_patience",
        "clip": "clip_grad_norm",
        "dev_examples": "max_dev_examples",
        "keep": "keep_checkpoints",
    },
}
"""Old and new names of options, by section."""

VALUES: Mapping[tuple[str, str], Mapping[Any, Any]] = {
    ("reorderer", "encoder"): {"sums": "prefix_sum"},
    ("reorderer", "straight"): {"scored": True, "free": False},
    ("encoder", "kind"): {"sums": "prefix_sum"},
    ("training", "unwritable"): {"refuse": "error", "leave_out": "skip"},
}
"""Old and new values, by the section and the old name of their option."""

_SECTIONS: Mapping[str, Mapping[str, str]] = {
    "run": {"task": "task", "text": "text", "model": "model", "training": "training"},
    "text": {"source": "side", "target": "side"},
    "model": {"reorderer": "reorderer", "head": "head", "inverse": "model"},
    "reorderer": {"encoder": "encoder"},
    "head": {"encoder": "encoder"},
}
"""The sections inside each section, by the new names of the options that contain them."""

EXPERIMENTS = {
    "arithmetic/exact-counting": "arithmetic/exact-prefix-sum",
    "arithmetic/hard-counting": "arithmetic/hard-prefix-sum",
    "arithmetic/soft-counting": "arithmetic/soft-prefix-sum",
    "geoquery/both-ways": "geoquery/exact-reranked",
    "geoquery/both-ways-window": "geoquery/exact-window-reranked",
    "geoquery/names": "geoquery/exact-window-reranked-linked",
}
"""Old and new names of experiments."""

PARAMETERS = {
    "reorderer.reader.": "reorderer.source_encoder.",
    "reorderer.root": "reorderer.grammar.root",
    "reorderer.rules": "reorderer.grammar.rules",
}
"""Old and new prefixes of the names of a transducer's parameters."""


def translate_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Translate the options of a saved run or model to their present names.

    Args:
        options: all options of a run or of a model, under old or present names; they are not changed.

    Returns:
        The options under their present names, and a line ``old -> new`` for each that was renamed.
    """
    section = "run" if options.keys() & _SECTIONS["run"].keys() else "model"
    changes: list[str] = []
    return _translate(options, section, ("", ""), changes), changes


def translate_settings(settings: Iterable[str]) -> list[str]:
    """Translate settings of a run, such as ``model.together=3``, to the present names of options.

    A setting of the reorderer's dropout becomes two, because its encoder now has a dropout of its own:

    >>> translate_settings(["model.reorderer.dropout=0.3"])
    ['model.reorderer.dropout=0.3', 'model.reorderer.encoder.dropout=0.3']
    """
    return [new for setting in settings for new in _translate_setting(setting)]


def rename_parameters(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Translate the names of a saved model's parameters; present names are not changed.

    In old files the inverse model is a submodule ``back``, and all members of an ensemble but the first are submodules
    ``others.0``, ``others.1`` and so on.
    """
    ensemble = any(name.startswith("others.") for name in state)
    inverse = any(name.startswith("back.") for name in state)
    renamed = {}
    for old_name, tensor in state.items():
        name, prefix = old_name, ""
        if ensemble:
            member = 0
            if name.startswith("others."):
                _, index, name = name.split(".", 2)
                member = int(index) + 1
            prefix = f"members.{member}."
        if inverse:
            prefix += "inverse." if name.startswith("back.") else "direct."
            name = name.removeprefix("back.")
        for old, new in PARAMETERS.items():
            if name.startswith(old):
                name = new + name.removeprefix(old)
                break
        renamed[prefix + name] = tensor
    return {_rename_attention(name, renamed): tensor for name, tensor in renamed.items()}


def _rename_attention(name: str, names: Container[str]) -> str:
    """Translate the name of a parameter of attention, which is now a part of the network over the output.

    A head of the kind ``attention`` is known by its layer ``combine``.

    >>> _rename_attention("head.keys.weight", ["head.keys.weight", "head.combine.weight"])
    'head.context.keys.weight'
    >>> _rename_attention("head.word_scores.attention.keys.weight", [])
    'head.word_scores.context.attention.keys.weight'
    """
    of_decoder = re.fullmatch(r"((?:.+\.)?head\.)((?:embeddings|stack|keys|values|combine)\..+)", name)
    if of_decoder and f"{of_decoder[1]}combine.weight" in names:
        return f"{of_decoder[1]}context.{of_decoder[2]}"
    of_states = re.fullmatch(r"((?:.+\.)?head\.(?:word_scores\.)?)(attention\..+)", name)
    return f"{of_states[1]}context.{of_states[2]}" if of_states else name


def new_name_of(name: str, known: Iterable[str]) -> str | None:
    """The present name of the option whose old name is ``name``; None if it is not one of the known options.

    >>> new_name_of("together", ["reorderer", "head", "ensemble_size"])
    'ensemble_size'
    """
    options = set(known)
    renamed = (new for names in OPTIONS.values() for old, new in names.items() if old == name)
    return next((new for new in renamed if new.partition(".")[0] in options), None)


_logged: set[str] = set()


def log_translation(path: str | Path, changes: list[str]) -> None:
    """Warn, once for each file, that the options in it were translated."""
    if changes and str(path) not in _logged:
        _logged.add(str(path))
        logging.getLogger("permalign").warning(
            "permalign: %s has options with old names; %d of them were translated (%s).",
            path,
            len(changes),
            changes[0] if len(changes) == 1 else f"{changes[0]}, ..., {changes[-1]}",
        )


def _translate(
    values: Mapping[str, Any], section: str, paths: tuple[str, str], changes: list[str]
) -> dict[str, Any]:
    """Translate a section; ``paths`` are the old and the new name of the section, each followed by a dot."""
    translated: dict[str, Any] = {}
    old_path, new_path = paths
    for old, value in values.items():
        new = OPTIONS[section].get(old, old)
        if old == "encoder" and isinstance(value, Mapping):
            new = old  # in old files, a reorderer's encoder is a string, its kind; now it is a section
        if new != old:
            changes.append(f"{old_path}{old} -> {new_path}{new}")
        inner = _SECTIONS.get(section, {}).get(new)
        if inner is not None and isinstance(value, Mapping):
            value = _translate(value, inner, (f"{old_path}{old}.", f"{new_path}{new}."), changes)
        elif isinstance(value, str):
            value = VALUES.get((section, old), {}).get(value, value)
        _put(translated, new, value)
    if section == "reorderer" and "dropout" in values and _has_flat_encoder(values):
        changes.append(f"{old_path}dropout -> {new_path}dropout and {new_path}encoder.dropout")
        _put(translated, "encoder.dropout", values["dropout"])
    return translated


def _has_flat_encoder(reorderer: Mapping[str, Any]) -> bool:
    """Whether the options of a reorderer's encoder are among those of the reorderer, as in old files."""
    return bool(reorderer.keys() & _ENCODER.keys()) or isinstance(reorderer.get("encoder"), str)


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    """Set an option by its dotted name; a mapping is merged into an existing one."""
    first, dot, remaining = name.partition(".")
    if dot:
        _put(values.setdefault(first, {}), remaining, value)
    elif isinstance(value, Mapping) and isinstance(values.get(first), dict):
        values[first].update(value)
    else:
        values[first] = value


def _translate_setting(setting: str) -> Iterator[str]:
    name, _, text = setting.partition("=")
    path = name.split(".")
    if path[-2:] == ["reorderer", "dropout"]:
        yield setting
        yield f"{name.removesuffix('dropout')}encoder.dropout={text}"
        return
    nested: Any = parse_yaml(text)
    for key in reversed(path):
        nested = {key: nested}
    translated, changes = translate_options(nested)
    if not changes and translated == nested:
        yield setting
        return
    new_path: list[str] = []
    value: Any = translated
    while isinstance(value, dict) and len(value) == 1 and len(new_path) <= len(path):
        (key, value), *_ = value.items()
        new_path.append(key)
    yield f"{'.'.join(new_path)}={_as_yaml(value)}"


def _as_yaml(value: Any) -> str:
    """Write a value for a setting: as JSON, which is also YAML, but strings without quotes where possible."""
    plain = isinstance(value, str) and parse_yaml(value) == value
    return str(value) if plain else json.dumps(value)
