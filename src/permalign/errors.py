"""The errors permalign raises for problems that a user can fix.

A wrong argument of a Python call raises a plain ``ValueError`` (as in torch.distributions). A problem with files,
networks, configuration or choices raises a `PermalignError`, which the command line prints without a stack trace.
Each message says what was wrong, what was expected and what to do.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that a terminal obeys instead of showing them."""

_MAX_DEPTH = 20
"""How deep a message looks into nested values."""

_MAX_BITS = 1000
"""The length up to which a message writes out a whole number."""


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
    return f"unknown {kind} {excerpt(name)}{hint} Choose from: {', '.join(names)}."


def similar_path(path: str | Path) -> str:
    """A question whether a neighbour of a missing file or folder was meant; empty if no name is similar.

    >>> similar_path("no-such-folder/pairs.tsv")
    ''
    """
    path = Path(path)
    try:
        names = sorted(other.name for other in path.parent.iterdir())
    except OSError:
        return ""
    nearest = get_close_matches(path.name, names, n=1, cutoff=0.8)
    return f" Did you mean {path.with_name(nearest[0])}?" if nearest else ""


def escape_control_characters(text: str) -> str:
    r"""A text whose control characters are written as Python writes them, except for line ends and tabs.

    >>> print(escape_control_characters("\x1b[2J jump"))
    \x1b[2J jump
    """
    return CONTROL_CHARACTERS.sub(
        lambda found: found[0] if found[0] in "\n\t" else repr(found[0])[1:-1], text
    )


def excerpt(value: object, max_length: int = 80) -> str:
    """A value as Python writes it, shortened if it is long, for messages.

    It takes no longer for a large value than for a small one: of a list or mapping only the beginning is read, and
    numbers of thousands of digits are not written out.

    >>> print(excerpt("jump twice"), excerpt("((((1+2)+3)+4)+5)", max_length=8))
    'jump twice' '((((1...'
    >>> excerpt({"seed": [10**5000, 1]})
    "{'seed': [a number of 16610 bits, 1]}"
    """
    if isinstance(value, str):
        return repr(shorten(value, max_length))
    return shorten("".join(islice(_pieces(value, depth=0), max_length)), max_length)


def shorten(text: str, max_length: int = 80) -> str:
    """A text, cut off if it is long, for messages.

    >>> shorten("jump twice", max_length=8)
    'jump ...'
    """
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def _pieces(value: object, depth: int) -> Iterator[str]:
    """What Python would write for a value, piece by piece."""
    if isinstance(value, (dict, list, tuple)) and depth > _MAX_DEPTH:
        yield "..."
    elif isinstance(value, dict):
        yield "{"
        for index, (key, inner) in enumerate(value.items()):
            yield ", " if index else ""
            yield from _pieces(key, depth + 1)
            yield ": "
            yield from _pieces(inner, depth + 1)
        yield "}"
    elif isinstance(value, (list, tuple)):
        yield "["
        for index, inner in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(inner, depth + 1)
        yield "]"
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        yield f"a number of {value.bit_length()} bits"
    elif isinstance(value, str):
        yield excerpt(value)
    else:
        yield repr(value)
