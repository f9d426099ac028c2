"""``permalign demo``: train a small model on arithmetic, and show how it parses an expression."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Train a small model on arithmetic, which takes a minute or two, and show how it parses an unseen expression.

\b
Examples:
  permalign demo
  permalign demo --run runs/demo
"""


@report_errors()
def demo(
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to save the run in [default: the run is deleted]."),
    ] = None,
) -> None:
    """Train and evaluate a small model, and explain one of its outputs."""
    from permalign.demo import show

    show(run)
