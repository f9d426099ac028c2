"""The errors permalign raises for problems that a user can fix.

A wrong argument of a Python call raises a plain ``ValueError`` (as in torch.distributions). A problem with files,
networks, configuration or choices raises a `PermalignError`, which the command line prints without a stack trace.
Each message says what was wrong, what was expected and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class PermalignError(Exception):
    """Something outside the program is wrong, and the message says how to fix it."""


class DataError(PermalignError):
    """A file does not hold what it should; the message begins with the file's name and line."""

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None) -> None:
        location = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(location + message)
        self.path = path
        self.line = line


class ConfigError(PermalignError, ValueError):
    """An option is unknown, has a wrong value, or contradicts another; the message names it."""


class UsageError(PermalignError, ValueError):
    """A task, split, device or the like was asked for that does not exist; the command line exits with code 2."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """A message about a name that does not exist: the nearest known name, then all of them.

    >>> unknown_name("task", "scn", ["scan", "geoquery"])
    "unknown task 'scn'; did you mean 'scan'? Choose from: scan, geoquery."
    """
    names = list(known)
    nearest = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    return f"unknown {kind} {name!r}{hint} Choose from: {', '.join(names)}."


def excerpt(text: str, max_length: int = 80) -> str:
    """A text in quotes, shortened if it is long, for messages.

    >>> print(excerpt("jump twice"), excerpt("((((1+2)+3)+4)+5)", max_length=8))
    'jump twice' '((((1...'
    """
    return repr(text if len(text) <= max_length else text[: max_length - 3] + "...")
