"""Plain-text tables and help texts."""

from collections.abc import Iterable, Sequence

from permalign.cli.printing import echo


def print_columns(rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> None:
    """Print a table; columns from index ``numbers_from`` on are right-aligned."""
    table = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for row in table:
        cells = [
            cell.ljust(width) if numbers_from is None or index < numbers_from else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        echo("  ".join(cells).rstrip())


def with_examples(sentence: str, *examples: str) -> str:
    r"""A command's help text with examples; ``\b`` makes click keep the line breaks of the examples."""
    return sentence + "\n\n\b\nExamples:\n" + "\n".join(f"  permalign {example}" for example in examples)
