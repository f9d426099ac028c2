"""The command line: it parses arguments and prints results; the work is done elsewhere."""

import sys
from io import TextIOWrapper


def main() -> None:
    """Run the command line; the console script ``permalign``."""
    try:
        from permalign.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit('The command line needs typer: pip install "permalign[cli]"')
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # data is UTF-8, whatever the console's encoding
    app(prog_name="permalign")
