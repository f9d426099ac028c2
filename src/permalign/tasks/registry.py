"""Every task by its name.

A task's options are the parameters of its class; the command line, configuration files and Python all use
these names.
"""

import inspect

from permalign.errors import UsageError, unknown_name
from permalign.tasks.arithmetic import Arithmetic
from permalign.tasks.base import Task
from permalign.tasks.geoquery import GeoQuery
from permalign.tasks.scan import ScanSP
from permalign.tasks.tatoeba import Tatoeba
from permalign.tasks.translation import Aligned, ChineseEnglish, EnglishJapanese
from permalign.tasks.user_data import ChineseEnglishDocs, UserData

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
    """Make a task, without reading its data yet.

    >>> get_task("en-jp")
    Traceback (most recent call last):
        ...
    permalign.errors.UsageError: unknown task 'en-jp'; did you mean 'en-ja'? ...

    Raises:
        UsageError: there is no such task, or it does not take these options or their values.
    """
    task = TASKS.get(name)
    if task is None:
        raise UsageError(unknown_name("task", name, TASKS))
    known = task_options(name)
    for option in options:
        if option not in known:
            takes = ", ".join(_flag(known_option) for known_option in known) or "none"
            raise UsageError(f"The task {name} has no option {_flag(option)}. It takes: {takes}.")
    missing = [_flag(option) for option, required in known.items() if required and option not in options]
    if missing:
        raise UsageError(f"The task {name} needs {' and '.join(missing)}.")
    try:
        return task(**options)
    except ValueError as error:
        raise UsageError(f"The task {name} cannot be made so: {error}") from error


def task_options(name: str) -> dict[str, bool]:
    """The options of a task, each with whether it has to be given."""
    parameters = inspect.signature(TASKS[name]).parameters.values()
    return {parameter.name: parameter.default is parameter.empty for parameter in parameters}


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
