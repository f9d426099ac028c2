"""``permalign ensemble``: one model that averages the probabilities of several."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Save an ensemble of several models, which averages their probabilities.

The models need the same vocabularies, but may have been trained with different seeds or options. The members can also
be the kept checkpoints of a single run.

\b
Examples:
  permalign ensemble runs/seed-0 runs/seed-1 runs/seed-2 --out ensemble
  permalign ensemble runs/geoquery-ssnt-seed-0 --out ensemble
"""


@report_errors()
def ensemble(
    models: Annotated[list[Path], typer.Argument(metavar="RUN | MODEL...", help="The members.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to save the ensemble in.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in that folder.")] = False,
) -> None:
    """Make an ensemble of models."""
    from permalign.training.combine_models import ensemble

    ensemble(models, out, overwrite=overwrite)
    typer.echo(out)
