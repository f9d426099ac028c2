"""Tables and help texts."""

import sys
from collections.abc import Iterable, Sequence

from permalign.cli.printing import echo, printable


def print_columns(rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> None:
    """Print a table whose first row is its header; columns from index ``numbers_from`` on are right-aligned.

    On a terminal, rich fits it to the width; elsewhere it is plain text, one line per row.
    """
    table = list(rows)
    if sys.stdout.isatty():
        _print_on_terminal(table, numbers_from)
        return
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for row in table:
        cells = [
            cell.ljust(width) if numbers_from is None or index < numbers_from else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        echo("  ".join(cells).rstrip())


def _print_on_terminal(rows: Sequence[Sequence[str]], numbers_from: int | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    header, *others = ([Text(printable(cell)) for cell in row] for row in rows)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, cell in enumerate(header):
        number = numbers_from is not None and index >= numbers_from
        table.add_column(cell, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in others:
        table.add_row(*row)
    Console(highlight=False).print(table)


def with_examples(sentence: str, *examples: str) -> str:
    r"""A command's help text with examples; ``\b`` makes click keep the line breaks of the examples."""
    return sentence + "\n\n\b\nExamples:\n" + "\n".join(f"  permalign {example}" for example in examples)
