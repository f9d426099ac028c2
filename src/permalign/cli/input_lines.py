"""Read the lines of a file, or of standard input as they arrive."""

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path

from permalign.errors import DataError, PermalignError, similar_path
from permalign.tasks.file_readers import MAXIMUM_LINE_BYTES, Line, decode_line, lines_of

STANDARD_INPUT = "standard input"
READ_BYTES = 1 << 16


def require_input(file: Path | None) -> None:
    """Raise an error if there is no such file, or standard input is closed; to be called before a model is loaded."""
    if file is None and sys.stdin is None:
        raise PermalignError("standard input is closed, so there is nothing to read.")
    if file is not None and not file.exists():
        raise DataError(f"there is no such file.{similar_path(file)}", file)


def batches_of_lines(file: Path | None, size: int) -> Iterator[list[Line]]:
    """Yield the lines of a file, or of standard input if it is None, in batches of at most ``size``.

    A read of standard input returns everything that is available, and waits only if there is nothing. So lines that
    arrive slowly are processed one by one, and while a batch is processed, the lines of the next one accumulate.

    Raises:
        DataError: a line is not UTF-8 or too long; the lines before it have been yielded.
    """
    if file is not None:
        yield from _batches(lines_of(file), size)
        return
    numbers = count(1)
    for raw_lines in _arriving_lines():
        numbered = zip(raw_lines, numbers, strict=False)
        lines = (Line(number, decode_line(raw, STANDARD_INPUT, number)) for raw, number in numbered)
        yield from _batches(lines, size)


def _batches(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    batch: list[Line] = []
    try:
        for line in lines:
            batch.append(line)
            if len(batch) == size:
                yield batch
                batch = []
    except DataError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _arriving_lines() -> Iterator[list[bytes]]:
    """Yield the complete lines of each read, without their line ends; the last line need not have one."""
    descriptor = sys.stdin.fileno()
    incomplete = b""
    while read := os.read(descriptor, READ_BYTES):
        *lines, incomplete = (incomplete + read).split(b"\n")
        if len(incomplete) > MAXIMUM_LINE_BYTES:  # refused without waiting for its end
            lines, incomplete = [*lines, incomplete], b""
        yield lines
    if incomplete:
        yield [incomplete]
