"""Print what may come from files of others: a terminal must show control characters, not obey them."""

import sys

import typer

from permalign.errors import escape_control_characters


def echo(message: object = "", err: bool = False) -> None:
    """Print a line; if it goes to a terminal, with its control characters escaped."""
    typer.echo(printable(str(message), err), err=err)


def printable(text: str, err: bool = False) -> str:
    """The text as it may be printed: on a terminal with escaped control characters, elsewhere as it is."""
    stream = sys.stderr if err else sys.stdout
    return escape_control_characters(text) if stream is not None and stream.isatty() else text
