"""The command line: it parses arguments and prints results; the work is done elsewhere."""

import sys
from io import TextIOWrapper

from permalign.openmp import thread_warning, use_passive_threads


def main() -> None:
    """Run the command line; the console script ``permalign``."""
    try:
        _main()
    except KeyboardInterrupt:  # while modules are imported; after that, commands report it themselves
        print("permalign: interrupted", file=sys.stderr)
        sys.exit(130)


def _main() -> None:
    use_passive_threads()
    if warning := thread_warning():
        print(f"permalign: {warning}", file=sys.stderr)
    try:
        from permalign.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit('The command line needs typer: pip install "permalign[training]".')
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # data is UTF-8, whatever the console's encoding
    app(prog_name="permalign")
