"""Read the examples of a user's file as records: TSV, CSV or JSON lines, each also compressed."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.tasks.columns import are_numbers, is_plain_word, looks_like_header, parse_columns, stands_out
from permalign.tasks.file_readers import Row, read_csv, read_table, read_text

Record = dict[str, object]

SUFFIXES = (".tsv", ".csv", ".jsonl", ".tsv.gz", ".csv.gz", ".jsonl.gz")


_SPREADSHEET = " Save the sheet as CSV."
_CONVERSIONS = {
    ".json": " Write one object per line, for example with `jq -c '.[]'`.",
    ".xls": _SPREADSHEET,
    ".xlsx": _SPREADSHEET,
    ".ods": _SPREADSHEET,
    ".parquet": " Save it with `Dataset.from_parquet(...).save_to_disk(FOLDER)` of datasets, and give the folder.",
}
"""What to do with files of other kinds, by their suffixes."""


def is_record_file(name: str | Path) -> bool:
    """Whether a file has a name that is read as a table or as JSON lines."""
    return str(name).lower().endswith(SUFFIXES)


def read_records(path: Path, *given: str | None) -> tuple[list[tuple[int, Record]], list[str]]:
    """Read a file; returns its records by line number, and notes on how it was read.

    Args:
        path: a file whose name ends in one of `SUFFIXES`.
        given: the columns that the user gave, by which a header is recognised.
    """
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if kind == "tsv":
        return _read_tsv(path, given)
    if kind == "csv":
        return _read_csv(path, given)
    if kind == "jsonl":
        lines = read_text(path, blank="skip").lines
        return [(number, _parse(text, path, number)) for number, text in lines], []
    raise DataError(
        f"expected a file that ends in {', '.join(SUFFIXES)}, a folder of them, or two aligned files."
        + _CONVERSIONS.get(path.suffix.lower(), ""),
        path,
    )


def _read_tsv(path: Path, given: tuple[str | None, ...]) -> tuple[list[tuple[int, Record]], list[str]]:
    rows = read_table(path, blank="skip").rows
    if not rows:
        raise DataError("the file is empty.", path, 1)
    names = rows[0].columns
    unusual = not any(given) and stands_out(names, [row.columns for row in rows[1:]])
    if unusual or looks_like_header(names, given):
        table = read_table(path, header=True, blank="skip")
        return [(row.number, _by_name(table.header, row)) for row in table.rows], []
    if any(given) and not are_numbers(*given):
        columns = " and ".join(name for name in given if name)
        raise DataError(
            f"there is no column {columns} in the header (found: {', '.join(names)}). For a file without a "
            "header, give the numbers of columns.",
            path,
            1,
        )
    notes = [] if any(given) else [_note_without_header(names)]
    return _numbered(rows), notes


def _read_csv(path: Path, given: tuple[str | None, ...]) -> tuple[list[tuple[int, Record]], list[str]]:
    """Read a file whose first line is the header, unless columns are given by numbers that are not in it."""
    table = read_csv(path)
    wanted = [name for option in given if option for name in parse_columns(option)]
    if are_numbers(*given) and not set(wanted) <= set(table.header):
        return _numbered([Row(1, table.header), *table.rows]), ["line 1 is an example too."]
    notes = []
    if not wanted and not any(map(is_plain_word, table.header)):
        notes = [
            "line 1 is read as the header. If it is an example, use --source-column 1 --target-column 2."
        ]
    return [(row.number, _by_name(table.header, row)) for row in table.rows], notes


def _numbered(rows: Sequence[Row]) -> list[tuple[int, Record]]:
    """The records of a file without a header, whose columns have numbers as names."""
    numbers = tuple(str(number) for number in range(1, len(rows[0].columns) + 1))
    return [(row.number, _by_name(numbers, row)) for row in rows]


def _note_without_header(cells: Sequence[str]) -> str:
    note = "there is no header with source and target, so line 1 is an example too."
    if len(cells) != 2 or not all(map(is_plain_word, cells)):
        return note
    source, target = (cell.strip() for cell in cells)
    return f"{note} If it is a header, use --source-column {source} --target-column {target}."


def _by_name(names: tuple[str, ...], row: Row) -> Record:
    return {name.strip(): value for name, value in zip(names, row.columns, strict=True)}


class _RepeatedKeyError(Exception):
    """A JSON object contains the same key twice."""


def _with_distinct_keys(pairs: list[tuple[str, object]]) -> Record:
    record: Record = {}
    for key, value in pairs:
        if key in record:
            raise _RepeatedKeyError(key)
        record[key] = value
    return record


def _parse(text: str, path: Path, number: int) -> Record:
    try:
        record = json.loads(text, object_pairs_hook=_with_distinct_keys)
    except _RepeatedKeyError as error:
        raise DataError(
            f"the key {error.args[0]!r} occurs twice. Remove one of them.", path, number
        ) from None
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "it is nested too deeply")
        raise DataError(f"the line is not JSON ({reason}).", path, number) from None
    if "\\ud" in text.lower() and not _is_text(record):
        raise DataError(
            "the line has half of a surrogate pair (\\ud...), which is not valid text.", path, number
        )
    if not isinstance(record, dict):
        raise DataError(
            f"expected a JSON object with source and target, found a {type(record).__name__}.", path, number
        )
    return record


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def value_of(record: Record, column: str) -> object:
    """The value of a column; ``translation.en`` is the value ``en`` of an object ``translation``.

    Raises:
        KeyError: there is no such column.
    """
    if column in record:
        return record[column]
    outer, dot, inner = column.partition(".")
    nested = record.get(outer)
    if dot and isinstance(nested, dict):
        return value_of(nested, inner)
    raise KeyError(column)


def columns_of(record: Record) -> Iterator[str]:
    """The names of all columns of a record, for messages."""
    for name, value in record.items():
        if isinstance(value, dict) and name != "meta":
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name
