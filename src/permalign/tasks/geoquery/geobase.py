"""Read Geobase, a Prolog file of facts about the geography of the United States."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from permalign.errors import DataError, excerpt
from permalign.tasks.file_readers import Line, read_text

Value = str | int | float | list[str]
Fact = Mapping[str, Value]
Geobase = Mapping[str, list[Fact]]

RELATIONS = {
    "state": (
        *("name", "abbreviation", "capital", "population", "area", "state_number"),
        *("city1", "city2", "city3", "city4"),
    ),
    "city": ("state", "state_abbreviation", "name", "population"),
    "river": ("name", "length", "states"),
    "border": ("state", "state_abbreviation", "neighbours"),
    "highlow": (
        *("state", "state_abbreviation", "highest_point", "highest_elevation"),
        *("lowest_point", "lowest_elevation"),
    ),
    "mountain": ("state", "state_abbreviation", "name", "height"),
    "road": ("number", "states"),
    "lake": ("name", "area", "states"),
    "country": ("name", "population", "area"),
}
"""The arguments of each relation. Areas of states are in square miles, lengths in kilometres, elevations in metres."""

_LISTS = {"states", "neighbours"}
_NUMBERS = {
    *("population", "area", "state_number", "length", "height"),
    *("highest_elevation", "lowest_elevation"),
}
_FACT = re.compile(r"(?P<relation>[a-z]+)\((?P<arguments>.*)\)\.")
_ATOM = r"'[^']*'"
_ARGUMENT = re.compile(
    rf"\s*(?:(?P<list>\[\s*(?:{_ATOM}\s*(?:,\s*{_ATOM}\s*)*)?\])|(?P<atom>{_ATOM})"
    r"|(?P<number>[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?))\s*(?:,|$)"
)


def read_geobase(path: Path) -> Geobase:
    """Read all facts; returns them by relation, in the order of the file.

    Raises:
        DataError: a line is neither a fact of one of the `RELATIONS` nor part of a comment.
    """
    facts: dict[str, list[Fact]] = {relation: [] for relation in RELATIONS}
    for line in _facts_only(path):
        match = _FACT.fullmatch(line.text.strip())
        if not match:
            raise DataError(
                "expected a Prolog fact such as `river('hudson',492,['new york']).`.", path, line.number
            )
        relation = match["relation"]
        if relation not in RELATIONS:
            raise DataError(
                f"unknown relation {excerpt(relation)}; known are {', '.join(RELATIONS)}.", path, line.number
            )
        facts[relation].append(_fact(relation, match["arguments"], path, line.number))
    return facts


def _facts_only(path: Path) -> Iterator[Line]:
    """Yield the lines that contain facts, without empty lines and comments (``/* ... */``)."""
    opened: int | None = None
    for line in read_text(path, blank="skip").lines:
        text = line.text.strip()
        if opened is None and text.startswith("/*"):
            opened = line.number
        if opened is None:
            yield line
        elif text.endswith("*/"):
            opened = None
    if opened is not None:
        raise DataError("the comment that begins here is never closed; end it with `*/`.", path, opened)


def _fact(relation: str, text: str, path: Path, line: int) -> Fact:
    values: list[Value] = []
    position = 0
    while position < len(text):
        match = _ARGUMENT.match(text, position)
        if not match:
            raise DataError(
                f"cannot read argument {len(values) + 1} of {relation!r}; expected a quoted name, a number or a list "
                "of quoted names.",
                path,
                line,
            )
        values.append(_value(match))
        position = match.end()
    names = RELATIONS[relation]
    if len(values) != len(names):
        raise DataError(f"{relation!r} has {len(names)} arguments, but {len(values)} are given.", path, line)
    for name, value in zip(names, values, strict=True):
        expected = list if name in _LISTS else (int, float) if name in _NUMBERS else str
        if not isinstance(value, expected):
            kind = "a list" if name in _LISTS else "a number" if name in _NUMBERS else "a quoted name"
            raise DataError(
                f"the {name} of {relation!r} must be {kind}, not {excerpt(str(value))}.", path, line
            )
    return dict(zip(names, values, strict=True))


def _value(match: re.Match[str]) -> Value:
    if match["list"] is not None:
        return re.findall("'([^']*)'", match["list"])
    if match["atom"] is not None:
        return match["atom"][1:-1]
    number = float(match["number"])
    return int(number) if number.is_integer() else number
