"""All tasks, by name.

The options of a task are the parameters of its class; they have the same names on the command line, in configuration
files and in Python.
"""

import inspect

from permalign.errors import UsageError, unknown_name
from permalign.tasks.arithmetic import Arithmetic
from permalign.tasks.base import Task
from permalign.tasks.geoquery import GeoQuery
from permalign.tasks.scan import ScanSP
from permalign.tasks.tatoeba import Tatoeba
from permalign.tasks.translation import Aligned, ChineseEnglish, ChineseEnglishDocs, EnglishJapanese
from permalign.tasks.user_data import UserData

_TASK_CLASSES: tuple[type[Task], ...] = (
    Arithmetic,
    ScanSP,
    GeoQuery,
    EnglishJapanese,
    ChineseEnglish,
    Tatoeba,
    ChineseEnglishDocs,
    Aligned,
    UserData,
)

TASKS: dict[str, type[Task]] = {task.name: task for task in _TASK_CLASSES}


def get_task(name: str, **options: object) -> Task:
    """Create a task by its name; its data is not read yet.

    >>> get_task("en-jp")
    Traceback (most recent call last):
        ...
    permalign.errors.UsageError: unknown task 'en-jp'; did you mean 'en-ja'? ...

    Raises:
        UsageError: the task or an option is unknown, a value is invalid, or a required option is missing.
    """
    task = TASKS.get(name)
    if task is None:
        raise UsageError(unknown_name("task", name, TASKS))
    known = task_options(name)
    for option in options:
        if option not in known:
            choices = ", ".join(map(_flag, known)) or "none"
            raise UsageError(f"the task {name} has no option {_flag(option)}; choose from: {choices}.")
    missing = [_flag(option) for option, required in known.items() if required and option not in options]
    if missing:
        raise UsageError(f"the task {name} needs {' and '.join(missing)}.")
    try:
        return task(**options)
    except ValueError as error:
        raise UsageError(f"invalid options of the task {name}: {error}") from error


def task_options(name: str) -> dict[str, bool]:
    """The names of a task's options; the value is true if the option is required."""
    parameters = inspect.signature(TASKS[name]).parameters.values()
    return {parameter.name: parameter.default is parameter.empty for parameter in parameters}


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
