"""``permalign demo``: train a small model on arithmetic and show how it parses an expression."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Train a small model on arithmetic, in a minute or two, and see how it parses an unseen expression.

\b
Examples:
  permalign demo
  permalign demo --run runs/demo
"""


@report_errors()
def demo(
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to keep the model in [default: none].")
    ] = None,
) -> None:
    """Train, evaluate and explain."""
    from permalign.demo import show

    show(run)
