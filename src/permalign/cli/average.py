"""``permalign average``: the mean of several models."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Write a model that is the mean of several: of a run's best checkpoints, or of any folders.

A run keeps several checkpoints if it is trained with --set training.keep_checkpoints=5. Models trained with
different seeds have nothing in common but what they say: take the mean of their probabilities.

\b
Examples:
  permalign average runs/geoquery-ssnt-seed-0 --out averaged
  permalign average runs/a/checkpoints/step-0000400 runs/a/checkpoints/last --out averaged
  permalign average runs/seed-0 runs/seed-1 runs/seed-2 --of probabilities --out together
"""


class Mean(StrEnum):
    """What the mean is taken of."""

    PARAMETERS = "parameters"
    PROBABILITIES = "probabilities"


@report_errors()
def average(
    models: Annotated[list[Path], typer.Argument(metavar="RUN | MODEL...", help="What to average.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write the mean.")],
    of: Annotated[
        Mean,
        typer.Option(
            help="One model of mean parameters; or all of them, to answer by their mean probability."
        ),
    ] = Mean.PARAMETERS,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Average models."""
    from permalign.training.averaging import average

    average(models, out, of=of.value, overwrite=overwrite)
    typer.echo(out)
