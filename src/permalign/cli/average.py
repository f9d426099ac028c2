"""``permalign average``: one model with the mean parameters of several."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Average the parameters of several models: of a run's best checkpoints, or of any folders.

A run keeps several checkpoints if it is trained with --set training.keep_checkpoints=5. Parameters of models that were
trained with different seeds have no meaningful average; make an ensemble of them instead.

\b
Examples:
  permalign average runs/geoquery-ssnt-seed-0 --out averaged
  permalign average runs/a/checkpoints/step-0000400 runs/a/checkpoints/last --out averaged
"""


@report_errors()
def average(
    models: Annotated[list[Path], typer.Argument(metavar="RUN | MODEL...", help="The models to average.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to save the average in.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in that folder.")] = False,
) -> None:
    """Average the parameters of models."""
    from permalign.training.combine_models import average

    average(models, out, overwrite=overwrite)
    typer.echo(out)
