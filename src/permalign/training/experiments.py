"""Load experiments: YAML files with the options that differ from the defaults.

Experiments ship with the package, or are files of the user. A file with ``extends: NAME`` starts from the options of
another experiment, or of a file in the same folder, and changes some of them.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from permalign.errors import ConfigError, DataError, UsageError, excerpt, similar_path, unknown_name
from permalign.files import read_limited_text
from permalign.options.renames import EXPERIMENTS, log_translation, translate_options
from permalign.options.run import RunOptions
from permalign.yaml_files import YamlError, parse_yaml

EXTENDS = "extends"
MAX_EXTENDED = 20
MAX_BYTES = 1_000_000


class SettingError(ConfigError, UsageError):
    """A setting on the command line is invalid, although the file that it changes is valid."""


def experiment_names() -> list[str]:
    """The names of all experiments that ship with the package, such as ``arithmetic/soft``."""
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in _shipped().iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml") and not file.name.startswith("_")
    )


def describe_experiments() -> dict[str, str]:
    """The names of all experiments, with their descriptions."""
    return {name: str(load_values(name).get("description", "")) for name in experiment_names()}


def load_experiment(name: str, settings: Iterable[str] = ()) -> RunOptions:
    """Load the options of an experiment or of a YAML file, and apply settings such as ``training.max_steps=200``.

    >>> load_experiment("arithmetic/soft", ["training.max_steps=200"]).training.max_steps
    200
    """
    return RunOptions.parse(load_changed_values(name, settings))


def load_saved_options(config: Path, settings: Iterable[str] = ()) -> RunOptions:
    """Load the options of a saved run, and apply settings; old names of options are translated.

    Args:
        config: the path of the run's ``config.yaml``.
        settings: changes to the options, ``OPTION=VALUE``.
    """
    values, changes = translate_options(load_values(str(config)))
    log_translation(config, changes)
    return RunOptions.parse(apply_settings(values, settings))


def load_changed_values(name: str, settings: Iterable[str] = ()) -> dict[str, Any]:
    """Load the options that an experiment or a YAML file sets, without defaults, and apply settings.

    Raises:
        SettingError: a setting is invalid.
        ConfigError: the options are invalid even without the settings.
    """
    return apply_settings(load_values(name), settings)


def apply_settings(values: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Apply settings to options; a setting of ``task.name`` replaces the task, its options and its splits.

    Raises:
        SettingError: a setting is invalid.
        ConfigError: the options are invalid even without the settings.
    """
    changes: dict[str, Any] = {}
    for setting in settings:
        changes = merged(changes, parse_setting(setting))
    changed = with_changes(values, changes)
    try:
        RunOptions.parse(changed)
    except ConfigError as error:
        if changed != values and _is_valid(values):
            raise SettingError(str(error)) from None
        raise
    return changed


def _is_valid(values: Mapping[str, Any]) -> bool:
    try:
        RunOptions.parse(values)
    except (ConfigError, UsageError):
        return False
    return True


def load_values(name: str) -> dict[str, Any]:
    """Load the options that an experiment or a file sets, including those of the files that it extends."""
    file, folder = _find(name)
    return _read(file, folder, ())


def parse_setting(setting: str) -> dict[str, Any]:
    """Parse a setting of the command line into nested mappings.

    >>> parse_setting("model.head.context=2")
    {'model': {'head': {'context': 2}}}
    """
    path, equals, text = setting.partition("=")
    if not equals or not all(path.split(".")):
        raise SettingError(
            f"{excerpt(setting)} is not a setting; expected option=value, such as training.max_steps=200."
        )
    try:
        value = parse_yaml(text)
    except YamlError as error:
        raise SettingError(f"the value in {excerpt(setting)} is not YAML ({error}).") from None
    for name in reversed(path.split(".")):
        value = {name: value}
    result: dict[str, Any] = value
    return result


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changes into values; mappings are merged key by key, any other value is replaced.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    result = dict(values)
    for key, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if nested else value
    return result


def with_changes(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changes into the options of a run; another task replaces the former one and all that belongs to it.

    >>> with_changes({"task": {"name": "geoquery", "language": "de"}, "dev": "len/dev"}, {"task": {"name": "scan-sp"}})
    {'task': {'name': 'scan-sp'}}
    """
    task, new = values.get("task"), changes.get("task")
    if (
        isinstance(task, Mapping)
        and isinstance(new, Mapping)
        and new.get("name", task.get("name")) != task.get("name")
    ):
        values = {name: value for name, value in values.items() if name not in ("task", "train", "dev")}
        text = values.get("text")
        source = text.get("source") if isinstance(text, Mapping) else None
        if isinstance(source, Mapping) and source.get("link_entities"):
            # the entities are those of the former task
            values = merged(values, {"text": {"source": {"link_entities": False}}})
    return merged(values, changes)


def _shipped() -> Traversable:
    return files("permalign") / "experiments"


def _find(name: str, folder: Path | None = None) -> tuple[Traversable | Path, Path | None]:
    """Find a file by its name; returns the file and its folder, which is None for experiments of the package."""
    path = (folder or Path()) / name
    if path.is_file():
        return path, path.parent
    shipped = _shipped() / f"{name}.yaml"
    if not name.startswith((".", "/")) and shipped.is_file():
        return shipped, None
    if name.startswith((".", "/", "~")) or path.suffix:
        if path.exists():
            raise DataError("is not a file; expected a YAML file with options.", path)
        raise DataError(f"there is no such file.{similar_path(path)}", path)
    if name in EXPERIMENTS:
        raise ConfigError(f"unknown experiment {name!r}; did you mean {EXPERIMENTS[name]!r}?")
    raise ConfigError(
        unknown_name("experiment", name, experiment_names()) + " A path to a YAML file works as well."
    )


def _read(file: Traversable | Path, folder: Path | None, extended_by: tuple[str, ...]) -> dict[str, Any]:
    if str(file) in extended_by:
        raise DataError(f"extends itself, through {' and '.join(extended_by)}.", str(file))
    if len(extended_by) > MAX_EXTENDED:
        raise DataError(f"is extended through more than {MAX_EXTENDED} files. Merge some of them.", str(file))
    try:
        values = parse_yaml(read_limited_text(file, MAX_BYTES))
    except ValueError as error:
        raise DataError(f"is not YAML: {error}", str(file)) from None
    if not isinstance(values, dict):
        raise DataError("must contain a mapping from options to values, such as `seed: 1`.", str(file))
    base = values.pop(EXTENDS, None)
    if base is None:
        return values
    return with_changes(_read(*_find(str(base), folder), (*extended_by, str(file))), values)
