"""Tables of plain text."""

from collections.abc import Iterable, Sequence

import typer


def print_columns(rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> None:
    """Print a table; columns from ``numbers_from`` on are flush right."""
    table = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for row in table:
        cells = [
            cell.ljust(width) if numbers_from is None or place < numbers_from else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())


def with_examples(sentence: str, *examples: str) -> str:
    """A command's help; the first character of the examples' paragraph keeps their line ends."""
    return sentence + "\n\n\b\nExamples:\n" + "\n".join(f"  permalign {example}" for example in examples)
