"""Named experiments that ship with the package, and files like them: YAML that holds what differs from the defaults.

A file may say ``extends: NAME`` to differ from another one: an experiment, or a file beside it.
"""

from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from permalign.errors import ConfigError, DataError, UsageError, unknown_name
from permalign.options.renames import EXPERIMENTS, log_translation, translate_options
from permalign.options.run import RunOptions

EXTENDS = "extends"


class SettingError(ConfigError, UsageError):
    """A setting of the command line is wrong, and not the file that it changes."""


class _Loader(yaml.SafeLoader):
    """YAML in which no key stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} stands twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def experiment_names() -> list[str]:
    """All that ship with the package, such as ``arithmetic/soft``."""
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in _shipped().iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".yaml") and not file.name.startswith("_")
    )


def describe_experiments() -> dict[str, str]:
    """A line about each."""
    return {name: str(load_values(name).get("description", "")) for name in experiment_names()}


def load_experiment(name: str, settings: Iterable[str] = ()) -> RunOptions:
    """The options of an experiment, or of a YAML file, with settings such as ``training.max_steps=200``.

    >>> load_experiment("arithmetic/soft", ["training.max_steps=200"]).training.max_steps
    200
    """
    return RunOptions.parse(load_changed_values(name, settings))


def load_saved_options(config: Path, settings: Iterable[str] = ()) -> RunOptions:
    """The options of a saved run, with settings; options that were saved under old names are translated.

    Args:
        config: the run's ``config.yaml``.
        settings: present names of options with new values.
    """
    values, changes = translate_options(load_values(str(config)))
    log_translation(config, changes)
    return RunOptions.parse(_with_settings(values, settings))


def load_changed_values(name: str, settings: Iterable[str] = ()) -> dict[str, Any]:
    """The options that an experiment or a YAML file sets, with settings.

    Raises:
        SettingError: a setting is wrong.
        ConfigError: the options are wrong even without the settings.
    """
    return _with_settings(load_values(name), settings)


def _with_settings(values: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    changed = values
    for setting in settings:
        changed = merged(changed, parse_setting(setting))
    try:
        RunOptions.parse(changed)
    except ConfigError as error:
        if changed != values and _is_right(values):
            raise SettingError(str(error)) from None
        raise
    return changed


def _is_right(values: Mapping[str, Any]) -> bool:
    try:
        RunOptions.parse(values)
    except (ConfigError, UsageError):
        return False
    return True


def load_values(name: str) -> dict[str, Any]:
    """What an experiment or file says, and what those say that it extends."""
    place, beside = _find(name)
    return _read(place, beside, ())


def parse_setting(setting: str) -> dict[str, Any]:
    """A setting of the command line as nested values.

    >>> parse_setting("model.head.context=2")
    {'model': {'head': {'context': 2}}}
    """
    path, equals, text = setting.partition("=")
    if not equals or not all(path.split(".")):
        raise SettingError(
            f"{setting!r} is no setting; expected option=value, such as training.max_steps=200."
        )
    try:
        value = yaml.load(text, _Loader)
    except yaml.YAMLError:
        raise SettingError(f"the value in {setting!r} is not YAML.") from None
    for name in reversed(path.split(".")):
        value = {name: value}
    result: dict[str, Any] = value
    return result


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values with changes; a mapping changes a mapping key by key, anything else replaces what was there.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    result = dict(values)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def _shipped() -> Traversable:
    return files("permalign") / "experiments"


def _find(name: str, beside: Path | None = None) -> tuple[Traversable | Path, Path | None]:
    """The file of a name, and the folder it is in if it is no experiment of the package."""
    path = (beside or Path()) / name
    if path.is_file():
        return path, path.parent
    shipped = _shipped() / f"{name}.yaml"
    if not name.startswith((".", "/")) and shipped.is_file():
        return shipped, None
    if name.endswith((".yaml", ".yml")):
        raise DataError("there is no such file.", path)
    if name in EXPERIMENTS:
        raise ConfigError(f"unknown experiment {name!r}; did you mean {EXPERIMENTS[name]!r}?")
    raise ConfigError(
        unknown_name("experiment", name, experiment_names()) + " A path to a YAML file works as well."
    )


def _read(place: Traversable | Path, beside: Path | None, seen: tuple[str, ...]) -> dict[str, Any]:
    if str(place) in seen:
        raise DataError(f"extends itself, by way of {' and '.join(seen)}.", str(place))
    try:
        values = yaml.load(place.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"is not YAML: {' '.join(str(error).split())}", str(place)) from None
    if not isinstance(values, dict):
        raise DataError("expected options with their values, such as `seed: 1`.", str(place))
    base = values.pop(EXTENDS, None)
    if base is None:
        return values
    below = _read(*_find(str(base), beside), (*seen, str(place)))
    return merged(below, values)
