"""``permalign demo``: a model learns arithmetic from nothing while you watch."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Train a small model on arithmetic, in a minute or two, and see how it reads an expression it never saw.

\b
Examples:
  permalign demo
  permalign demo --run runs/demo
"""


@report_errors()
def demo(
    run: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the model in this folder.")] = None,
) -> None:
    """Train, evaluate and explain."""
    from permalign.demo import show

    show(run)
