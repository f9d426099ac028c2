"""Read lines from standard input as they arrive."""

import os
import sys
from collections.abc import Iterator

from permalign.errors import DataError, PermalignError
from permalign.tasks.file_readers import MAXIMUM_LINE_BYTES, Line, decode_line

STANDARD_INPUT = "standard input"
READ_BYTES = 1 << 16


def require_input() -> None:
    """Raise an error if standard input is closed; to be called before a model is loaded."""
    if sys.stdin is None:
        raise PermalignError("standard input is closed, so there is nothing to read.")


def batches_of_lines(size: int) -> Iterator[list[Line]]:
    """Yield the lines of standard input in batches of at most ``size``.

    A read returns everything that is available, and waits only if there is nothing. So lines that arrive slowly are
    processed one by one, and while a batch is processed, the lines of the next one accumulate.

    Raises:
        DataError: a line is not UTF-8 or too long; the lines before it have been yielded.
    """
    number = 0
    for raw_lines in _arriving_lines():
        batch: list[Line] = []
        for raw in raw_lines:
            number += 1
            try:
                batch.append(Line(number, decode_line(raw, STANDARD_INPUT, number)))
            except DataError:
                if batch:
                    yield batch
                raise
            if len(batch) == size:
                yield batch
                batch = []
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
