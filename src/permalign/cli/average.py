"""``permalign average``: the mean of several models."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.plain import plain_endings

HELP = """Write a model whose parameters are the mean of several: of a run's best checkpoints, or of any folders.

A run keeps several checkpoints if it is trained with --set training.keep=5.

\b
Examples:
  permalign average runs/geoquery-ssnt-seed-0 --out averaged
  permalign average runs/a/checkpoints/step-0000400 runs/a/checkpoints/last --out averaged
"""


@plain_endings()
def average(
    models: Annotated[list[Path], typer.Argument(metavar="RUN | MODEL...", help="What to average.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write the mean.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Average models."""
    from permalign.training.averaging import average

    average(models, out, overwrite=overwrite)
    typer.echo(out)
