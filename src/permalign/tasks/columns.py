"""Which columns of a user's file hold the sources and the targets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

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

WITH_LEMMA = ("tags", "features", "feats", "msd")
"""Columns that belong to the source if it is a lemma: they say which of its forms is wanted."""

SPLIT_COLUMNS = {"split": "iid", "iid": "iid", "temp": "temp", "len": "len"}
"""Columns that assign an example to train, dev or test, and the condition that each stands for."""

OTHER_NAMES = ("id", "meta", *WITH_LEMMA, *SPLIT_COLUMNS)
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


MIN_OTHER_LINES = 10
"""The number of lines from which an unusual header is recognised by how it differs from them."""


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


def stands_out(cells: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether the first line of a file holds names of columns, because only its cells are plain words.

    Where the cells of all other lines are sentences, numbers or formulas, a line of single words is no example. Where
    they are words themselves, as in a list of inflected forms, this cannot be told.

    >>> rows = [["12 March 2021", "2021-03-12"]] * 20
    >>> stands_out(["date", "iso"], rows), stands_out(["date", "iso"], [*rows, ["yesterday", "?"]])
    (True, False)
    """
    if len(others) < MIN_OTHER_LINES or not all(map(is_plain_word, cells)):
        return False
    return not any(is_plain_word(cell) for row in others for cell in row)


def is_plain_word(cell: str) -> bool:
    """Whether a cell could be the name of a column: one word without punctuation, except for hyphens."""
    return cell.strip().replace("-", "_").isidentifier()


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
    pair = _usual_pair(names) if source is None and target is None else None
    others = [name for name in names if name.lower() not in ("id", "meta", *SPLIT_COLUMNS)]
    if pair is None and len(others) == 2:
        given = source if source is not None else target
        if given is None:
            pair = (others[0], others[1])
        elif given in others:
            other = others[1 - others.index(given)]
            pair = (given, other) if source is not None else (other, given)
    if pair is None:
        raise ValueError(_unclear(names, source, target))
    sources = (
        pair[0],
        *(name for name in others if name.lower() in WITH_LEMMA and pair[0].lower() == "lemma"),
    )
    unused = [name for name in others if name not in (*sources, pair[1])]
    if sources == ("source",) and pair[1] == "target":
        return Columns(sources, (pair[1],))
    return Columns(sources, (pair[1],), _describe_choice(sources, pair[1], unused))


def no_such_column(column: str, names: Sequence[str]) -> str:
    """The message that a column was asked for which a file does not have.

    >>> print(no_such_column("targt", ["source", "target"]).partition(" Name ")[0])
    there is no column 'targt' (found: source, target). Did you mean 'target'?
    """
    nearest = get_close_matches(column, names, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return (
        f"there is no column {column!r} (found: {', '.join(names) or 'none'}).{hint} Name columns that there are with "
        "--source-column and --target-column, or with source_column and target_column in a config."
    )


def _usual_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """The columns with usual names, in upper or lower case; None if there are none."""
    by_name = {name.lower(): name for name in reversed(names)} | {name: name for name in names}
    pair = next((pair for pair in PAIRS if set(pair) <= set(by_name)), None)
    return None if pair is None else (by_name[pair[0]], by_name[pair[1]])


def _describe_choice(sources: Sequence[str], target: str, unused: Sequence[str]) -> str:
    listed = " and ".join(map(repr, sources))
    note = f"the source is {listed}, the target {target!r}."
    if unused:
        joined = ",".join((*sources, unused[0]))
        note += f" Not used: {', '.join(map(repr, unused))} (join columns with --source-column {joined!r})."
    return note


def _unclear(names: Sequence[str], source: str | None, target: str | None) -> str:
    """The message that says which columns have to be given, and how."""
    if len(names) < 2:
        return (
            f"there is only one column ({', '.join(names)}), but a source and a target are expected. Separate them by "
            "a tab in a .tsv file and by a comma in a .csv file, or give them two names in a .jsonl file."
        )
    for name in parse_columns(source or target or ""):
        if name and name not in names:
            return no_such_column(name, names)
    missing = [name for name, given in (("source", source), ("target", target)) if given is None]
    numbered = all(name.isdigit() for name in names)
    flags = " and ".join(f"--{name}-column {'NUMBER' if numbered else 'NAME'}" for name in missing)
    keys = " and ".join(f"{name}_column" for name in missing)
    return (
        f"it is not clear which column holds the {missing[0]}s (found: {', '.join(names)}). Give {flags}, or {keys} in "
        f"a config; several columns are joined: {'1,3' if numbered else 'A,B'}."
    )
