"""Read text files line by line: as other programs write them, but nothing that is broken.

UTF-8 with or without a byte order mark, UTF-16 with one, and Unix or Windows line ends are all read; so are files that
gzip compressed. Anything else that is unexpected (bytes that are not text, an empty line, a very long line, a missing
column) raises a `DataError` that gives the file and the line. Empty lines are skipped only if the caller allows it, and
are counted.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

from permalign.errors import DataError, similar_path

MAXIMUM_LINE_BYTES = 1_000_000
"""The largest length of a line. A longer line is probably not a sentence, but a file whose line ends are lost."""

_UTF_8_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


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
    """The rows of a file of tab-separated or comma-separated values.

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
) -> TextFile:
    """Read a text file; files whose names end in ``.gz`` are decompressed.

    Args:
        path: the path of the file.
        blank: what to do with an empty line: raise an error, skip and count it, or keep it (for files that are aligned
            line by line).

    Raises:
        DataError: the file cannot be read as text; the message gives the file and the line.
    """
    path = Path(path)
    lines: list[Line] = []
    skipped = 0
    for line in lines_of(path):
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
    rows = [Row(number, tuple(text.split("\t"))) for number, text in file.lines]
    return _table(file, rows, columns, "tab-separated", header)


def read_csv(path: str | Path) -> Table:
    """Read a file of comma-separated values with a header; values may be quoted, and may then contain line ends.

    A spreadsheet may separate values by semicolons or tabs instead: what occurs most often in the header separates.
    Empty lines are skipped.

    Raises:
        DataError: a line has a different number of columns, quotes do not match, or the file cannot be read as text.
    """
    file = read_text(path, blank="keep")
    if not any(line.text.strip() for line in file.lines):
        raise DataError("the file is empty; expected a header with the names of the columns.", file.path, 1)
    header = next(line.text for line in file.lines if line.text.strip())
    reader = csv.reader(
        (f"{line.text}\n" for line in file.lines), delimiter=max(",;\t", key=header.count), strict=True
    )
    rows: list[Row] = []
    begin = 1
    try:
        for columns in reader:
            if any(column.strip() for column in columns):
                rows.append(Row(begin, tuple(column.strip() for column in columns)))
            begin = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"the values are not quoted properly ({error}).", file.path, begin) from None
    return _table(file, rows, None, "comma-separated", header=True)


def _table(file: TextFile, rows: list[Row], columns: int | None, kind: str, header: bool) -> Table:
    """Check that all rows have the same number of columns, and take the header from them."""
    for row in rows:
        columns = len(row.columns) if columns is None else columns
        if len(row.columns) != columns:
            raise DataError(
                f"expected {columns} {kind} columns, found {len(row.columns)}.", file.path, row.number
            )
    if header and not rows:
        raise DataError("the file is empty; expected a header with the names of the columns.", file.path, 1)
    names = rows.pop(0).columns if header else ()
    if len(set(names)) != len(names):
        raise DataError(
            f"two columns have the same name ({', '.join(names)}). Rename one of them.", file.path, 1
        )
    return Table(file.path, names, rows, file.skipped)


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of a text file as they are read; see `read_text`."""
    try:
        with _open(path) as stream:
            number = 0
            while raw := stream.readline(MAXIMUM_LINE_BYTES + 1):
                number += 1
                yield Line(number, decode_line(raw.removesuffix(b"\n"), path, number))
    except FileNotFoundError:
        raise DataError(f"there is no such file.{similar_path(path)}", path) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot be read ({reason}).", path) from error


@contextmanager
def _open(path: Path) -> Iterator[gzip.GzipFile | BufferedReader | BytesIO]:
    """Open a file that may be compressed; one in UTF-16 is read at once, and recoded as UTF-8."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        if not stream.peek(2).startswith(_UTF_16_MARKS):
            yield stream
            return
        try:
            text = stream.read().decode("utf-16")
        except UnicodeDecodeError as error:
            raise DataError(
                f"the file begins with a UTF-16 byte order mark, but is not UTF-16 ({error.reason}). Save it as UTF-8.",
                path,
            ) from None
    yield BytesIO(text.encode("utf-8", "surrogatepass"))


def decode_line(raw: bytes, path: str | Path, number: int) -> str:
    """Decode a line of UTF-8, which is given without its line feed.

    A byte order mark in the first line, and a carriage return at the end of a line, are dropped.

    Raises:
        DataError: the line is not valid text. The first check that fails explains the problem best.
    """
    raw = raw.removesuffix(b"\r")
    if number == 1:
        raw = raw.removeprefix(_UTF_8_MARK)
    if b"\x00" in raw or (number == 1 and raw.startswith(_UTF_16_MARKS)):
        raise DataError(
            "the line has zero bytes, so it is UTF-16 or no text at all. Save it as UTF-8, for example with "
            "`iconv -f utf-16 -t utf-8`.",
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
            "the line has a carriage return in its middle (an old Macintosh line end?). "
            "Save the file with Unix line ends, for example with `dos2unix -c mac`.",
            path,
            number,
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8. "
            "If the file is text, save it as UTF-8, for example with `iconv -f latin1 -t utf-8`.",
            path,
            number,
        ) from None
