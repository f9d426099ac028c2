"""Read text files line by line, with strict checks.

Anything unexpected in a file (bytes that are not UTF-8, a byte order mark, Windows line ends, an empty line, a very
long line, a missing column) raises a `DataError` that gives the file and the line. Empty lines are skipped only if the
caller allows it, and are counted.
"""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Literal, NamedTuple

from permalign.errors import DataError

MAXIMUM_LINE_BYTES = 1_000_000
"""The largest length of a line. A longer line is probably not a sentence, but a file whose line ends are lost."""

_BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "UTF-8",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class Line(NamedTuple):
    """A line without its line end, and its number in the file, counted from 1."""

    number: int
    text: str


class Row(NamedTuple):
    """The columns of a line, and its number in the file, counted from 1."""

    number: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextFile:
    """The lines of a file, and the number of empty lines skipped."""

    path: Path
    lines: list[Line]
    skipped: int


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a tab-separated file.

    Attributes:
        path: the path of the file.
        header: the names of the columns; empty if the file has no header.
        rows: all lines but the header, each with the same number of columns.
        skipped: the number of empty lines skipped.
    """

    path: Path
    header: tuple[str, ...]
    rows: list[Row]
    skipped: int

    def column(self, name: str) -> int:
        """The index of the column with a given name; raises a `DataError` if there is none."""
        if name not in self.header:
            names = ", ".join(self.header) or "no header"
            raise DataError(f"there is no column {name!r} (found: {names}).", self.path, 1)
        return self.header.index(name)


def read_text(
    path: str | Path,
    *,
    blank: Literal["error", "skip", "keep"] = "error",
    windows_line_ends: bool = False,
) -> TextFile:
    """Read a UTF-8 file with Unix line ends; files whose names end in ``.gz`` are decompressed.

    Args:
        path: the path of the file.
        blank: what to do with an empty line: raise an error, skip and count it, or keep it (for files that are aligned
            line by line).
        windows_line_ends: whether a carriage return may precede the line feed, as in some upstream files.

    Raises:
        DataError: the file cannot be read as text; the message gives the file and the line.
    """
    path = Path(path)
    lines: list[Line] = []
    skipped = 0
    for line in _lines(path, windows_line_ends):
        if blank != "keep" and not line.text.strip():
            if blank == "error":
                raise DataError("the line is empty. Remove it, or add its text.", path, line.number)
            skipped += 1
        else:
            lines.append(line)
    return TextFile(path, lines, skipped)


def read_table(
    path: str | Path,
    columns: int | None = None,
    *,
    header: bool = False,
    blank: Literal["error", "skip"] = "error",
) -> Table:
    """Read a tab-separated file, without quoting, whose lines all have the same number of columns.

    Args:
        path: the path of the file.
        columns: the number of columns; by default that of the first line.
        header: whether the first line contains the names of the columns.
        blank: whether to raise an error for an empty line, or to skip and count it.

    Raises:
        DataError: a line has a different number of columns, or the file cannot be read as text.
    """
    file = read_text(path, blank=blank)
    rows: list[Row] = []
    for number, text in file.lines:
        row = Row(number, tuple(text.split("\t")))
        if columns is None:
            columns = len(row.columns)
        if len(row.columns) != columns:
            raise DataError(
                f"expected {columns} tab-separated columns, found {len(row.columns)}.", file.path, number
            )
        rows.append(row)
    if header and not rows:
        raise DataError("the file is empty; expected a header with the names of the columns.", file.path, 1)
    names = rows.pop(0).columns if header else ()
    if len(set(names)) != len(names):
        raise DataError(
            f"two columns have the same name ({', '.join(names)}). Rename one of them.", file.path, 1
        )
    return Table(file.path, names, rows, file.skipped)


def _lines(path: Path, windows_line_ends: bool) -> Iterator[Line]:
    try:
        with _open(path) as stream:
            number = 0
            while raw := stream.readline(MAXIMUM_LINE_BYTES + 1):
                number += 1
                raw = raw.removesuffix(b"\n")
                if windows_line_ends:
                    raw = raw.removesuffix(b"\r")
                yield Line(number, decode_line(raw, path, number))
    except FileNotFoundError:
        raise DataError("there is no such file.", path) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot be read ({reason}).", path) from error


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def decode_line(raw: bytes, path: str | Path, number: int) -> str:
    """Decode a line, which is given without its line end.

    Raises:
        DataError: the line is not valid text. The first check that fails explains the problem best.
    """
    if number == 1:
        for mark, encoding in _BYTE_ORDER_MARKS.items():
            if raw.startswith(mark):
                raise DataError(
                    f"the file begins with a {encoding} byte order mark. Save it as UTF-8 without one.",
                    path,
                    number,
                )
    if len(raw) > MAXIMUM_LINE_BYTES:
        raise DataError(
            f"the line is longer than {MAXIMUM_LINE_BYTES:,} bytes. Does the file have one sentence per line?",
            path,
            number,
        )
    if b"\r" in raw:
        raise DataError(
            "the line has a carriage return (a Windows or old Macintosh line end). "
            "Save the file with Unix line ends, for example with `dos2unix`.",
            path,
            number,
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8. "
            "Save the file as UTF-8, for example with `iconv -t utf-8`.",
            path,
            number,
        ) from None
