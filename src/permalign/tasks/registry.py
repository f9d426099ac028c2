"""Create tasks by name.

The options of a task are the parameters of its class; they have the same names on the command line, in configuration
files and in Python.
"""

import inspect
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from permalign.errors import UsageError, excerpt
from permalign.plugins import TASKS, PluginError
from permalign.tasks.base import Task

_TYPES = {int: "a whole number", bool: "true or false", str: "text", Path: "a path", type(None): "null"}
"""What options of tasks may be, in words."""

_MAX_BITS = 53
"""The length of the longest whole number that every program reads from JSON without loss."""


def get_task(name: str, **options: object) -> Task:
    """Create a task by its name; its data is not read yet.

    >>> get_task("en-jp")
    Traceback (most recent call last):
        ...
    permalign.errors.UsageError: unknown task 'en-jp'; did you mean 'en-ja'? ...

    Raises:
        UsageError: the task or an option is unknown, a value is invalid, or a required option is missing.
    """
    task = load_task_class(name)
    known = task_options(name)
    for option in options:
        if option not in known:
            nearest = get_close_matches(option, known, n=1)
            hint = f"did you mean {_spelt(nearest[0])}? Choose" if nearest else "choose"
            choices = ", ".join(known) or "none"
            raise UsageError(f"the task {name} has no option {_spelt(option)}; {hint} from: {choices}.")
    missing = [_spelt(option) for option, required in known.items() if required and option not in options]
    if missing:
        raise UsageError(f"the task {name} needs {' and '.join(missing)}.")
    types = get_type_hints(task.__init__)
    for option, value in options.items():
        _require_type(name, option, value, types[option])
    try:
        return task(**options)
    except ValueError as error:
        raise UsageError(f"invalid options of the task {name}: {error}") from error


def load_task_class(name: str) -> type[Task]:
    """The class of a task.

    Raises:
        UsageError: there is no such task, or its plug-in cannot be imported.
    """
    try:
        task: type[Task] = TASKS.load(name)
    except PluginError as error:
        raise UsageError(str(error)) from error
    return task


def task_options(name: str) -> dict[str, bool]:
    """The names of a task's options; the value is true if the option is required."""
    parameters = inspect.signature(load_task_class(name)).parameters.values()
    return {parameter.name: parameter.default is parameter.empty for parameter in parameters}


def _require_type(task: str, option: str, value: object, annotation: Any) -> None:
    """Check the type of an option's value; which texts a task chooses from is its own to check."""
    allowed = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    allowed = tuple(str if get_origin(kind) is Literal else kind for kind in allowed)
    fits = any(type(value) is kind or (kind in (str, Path) and isinstance(value, kind)) for kind in allowed)
    if not fits or (isinstance(value, int) and value.bit_length() > _MAX_BITS):
        expected = " or ".join(_TYPES[kind] for kind in allowed)
        raise UsageError(f"the task {task} needs {expected} for {_spelt(option)}, not {excerpt(value)}.")


def _spelt(option: str) -> str:
    """How an option is spelt on the command line, and in a config.

    >>> _spelt("source_column")
    '--source-column (task.source_column in a config)'
    """
    return f"--{option.replace('_', '-')} (task.{option.replace('-', '_')} in a config)"
