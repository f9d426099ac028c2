"""Read two text files that are aligned line by line."""

from pathlib import Path
from typing import Literal

from permalign.errors import DataError
from permalign.tasks.file_readers import read_text

Pair = tuple[int, tuple[str, ...], tuple[str, ...]]
"""The line number, the source and the target of a pair of sentences."""


def read_aligned(source: Path, target: Path, *, blank: Literal["error", "keep"] = "keep") -> list[Pair]:
    """Read two files that are aligned line by line.

    Raises:
        DataError: the files have different numbers of lines, or one of them cannot be read.
    """
    sources = read_text(source, blank=blank).lines
    targets = read_text(target, blank=blank).lines
    if len(sources) != len(targets):
        longer, other = (source, target) if len(sources) > len(targets) else (target, source)
        raise DataError(
            f"this line has no counterpart: {other} ends before it ({source.name} has {len(sources)} lines, "
            f"{target.name} {len(targets)}). Aligned files have the same number of lines.",
            longer,
            min(len(sources), len(targets)) + 1,
        )
    return [
        (number, tuple(source_text.split()), tuple(target_text.split()))
        for (number, source_text), (_, target_text) in zip(sources, targets, strict=True)
    ]
