"""Standard input as lines, as they arrive."""

import os
import sys
from collections.abc import Iterator

from permalign.errors import DataError, PermalignError
from permalign.tasks.text_files import MAXIMUM_LINE_BYTES, Line, decode_line

STANDARD_INPUT = "standard input"
READ_BYTES = 1 << 16


def require_input() -> None:
    """An error where there is nothing to read from; to ask before a model is loaded."""
    if sys.stdin is None:
        raise PermalignError("standard input is closed; there is nothing to read.")


def batches_of_lines(size: int) -> Iterator[list[Line]]:
    """The lines of standard input, at most ``size`` at once.

    A read takes what is there, and waits only if nothing is. So lines that come slowly are passed on one by one,
    and while a batch is worked on, the next one gathers.

    Raises:
        DataError: a line is not UTF-8 or too long; those before it have been passed on.
    """
    number = 0
    for raw_lines in _arriving_lines():
        batch: list[Line] = []
        for raw in raw_lines:
            number += 1
            try:
                batch.append(Line(number, decode_line(raw.removesuffix(b"\r"), STANDARD_INPUT, number)))
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
    """Whole lines without their ends, as many as each read completes; what follows the last end is a line too."""
    descriptor = sys.stdin.fileno()
    begun = b""
    while read := os.read(descriptor, READ_BYTES):
        *lines, begun = (begun + read).split(b"\n")
        if len(begun) > MAXIMUM_LINE_BYTES:  # it need not be read to its end to be refused
            lines, begun = [*lines, begun], b""
        yield lines
    if begun:
        yield [begun]
