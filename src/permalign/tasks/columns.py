"""Which columns of a user's file hold the sources and the targets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PAIRS = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("input", "output"),
    ("inputs", "outputs"),
    ("question", "query"),
    ("question", "logical_form"),
    ("question", "program"),
    ("question", "sql"),
    ("question", "answer"),
    ("utterance", "logical_form"),
    ("utterance", "program"),
    ("text", "label"),
    ("text", "labels"),
    ("sentence", "tags"),
    ("lemma", "form"),
    ("command", "actions"),
    ("prompt", "completion"),
    ("x", "y"),
)
"""Names by which the columns of sources and targets are recognised, the first pair that is there."""

SPLIT_COLUMNS = {"split": "iid", "iid": "iid", "temp": "temp", "len": "len"}
"""Columns that assign an example to train, dev or test, and the condition that each stands for."""

OTHER_NAMES = ("id", "meta", "tags", "features", *SPLIT_COLUMNS)
LANGUAGES = frozenset(
    (
        "ar",
        "cs",
        "da",
        "de",
        "el",
        "en",
        "es",
        "fa",
        "fi",
        "fr",
        "he",
        "hi",
        "hu",
        "id",
        "it",
        "ja",
        "ko",
        "nl",
        "no",
    )
) | {"pl", "pt", "ro", "ru", "sv", "th", "tr", "uk", "vi", "zh"}
_KNOWN = frozenset({name for pair in PAIRS for name in pair} | {*OTHER_NAMES})


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that make up the source and the target.

    Attributes:
        source: the columns of the source; if there are several, their texts are joined by spaces.
        target: the columns of the target, likewise.
        note: says which columns were chosen, if they were neither given nor named ``source`` and ``target``.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    note: str | None = None


def parse_columns(names: str) -> tuple[str, ...]:
    """Split the names of columns at commas.

    >>> parse_columns("lemma, tags")
    ('lemma', 'tags')
    """
    return tuple(name.strip() for name in names.split(","))


def are_numbers(*options: str | None) -> bool:
    """Whether columns are given by their numbers, as for a file without a header."""
    return any(option is not None and all(map(str.isdecimal, parse_columns(option))) for option in options)


def looks_like_header(cells: Sequence[str], given: Iterable[str | None]) -> bool:
    """Whether the first line of a file holds the names of columns and not an example.

    It does if it has the columns that were asked for, or if all its cells are usual names of columns or languages.

    >>> looks_like_header(["source", "target"], ()), looks_like_header(["walk", "walked"], ())
    (True, False)
    """
    names = [cell.strip() for cell in cells]
    wanted = [name for option in given if option for name in parse_columns(option)]
    if wanted:
        return any(name in names for name in wanted) and not are_numbers(",".join(wanted))
    lower = [name.lower() for name in names]
    return len(set(lower)) == len(lower) and all(name in _KNOWN or name in LANGUAGES for name in lower)


def choose_columns(record: Mapping[str, object], source: str | None, target: str | None) -> Columns:
    """Choose the columns of sources and targets from the names in a header, or in the first JSON object.

    Args:
        record: a line of the file, by the names of its columns.
        source: the columns that the user gave for the source, separated by commas; None to choose.
        target: the columns that the user gave for the target, separated by commas; None to choose.

    Raises:
        ValueError: the columns cannot be told; the message says how to give them.
    """
    names = list(record)
    if source is not None and target is not None:
        return Columns(parse_columns(source), parse_columns(target))
    pair = None
    if source is None and target is None:
        pair = next((pair for pair in PAIRS if set(pair) <= set(names)), None)
    others = [name for name in names if name not in ("id", "meta", *SPLIT_COLUMNS)]
    if pair is None and len(others) == 2:
        given = source if source is not None else target
        if given is None:
            pair = (others[0], others[1])
        elif given in others:
            other = others[1 - others.index(given)]
            pair = (given, other) if source is not None else (other, given)
    if pair is None:
        missing = "source_column" if source is None else "target_column"
        flag = "--" + missing.replace("_", "-")
        raise ValueError(
            f"it is not clear which column holds the {missing.removesuffix('_column')}s (found: {', '.join(names)}). "
            f"Give {flag} NAME and so on, or {missing}: NAME in a config; several columns are joined: {flag} A,B."
        )
    note = None if pair == ("source", "target") else f"the source is {pair[0]!r}, the target {pair[1]!r}."
    return Columns((pair[0],), (pair[1],), note)
