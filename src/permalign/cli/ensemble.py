"""``permalign ensemble``: combine several models into an ensemble, which averages their probabilities."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Combine several models into an ensemble, which averages their probabilities, and save it.

The models must have the same vocabularies, but may have been trained with different seeds or options. They can also be
the checkpoints that a single run has kept (see training.keep_checkpoints). The result is a run with the task of the
first model, which evaluate, compare, predict, explain and serve take.

\b
Examples:
  permalign ensemble runs/seed-0 runs/seed-1 runs/seed-2 --out runs/ensemble
  permalign ensemble runs/geoquery-ssnt-seed-0 --out runs/ensemble
  permalign evaluate runs/ensemble
"""


@report_errors()
def ensemble(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN | MODEL...",
            help="Folders of the models to combine, or a single run, whose checkpoints are combined.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the new run.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing run in the folder.")
    ] = False,
) -> None:
    """Combine models into an ensemble, and save it."""
    from permalign.training.combine_models import ensemble

    ensemble(models, out, overwrite=overwrite)
    typer.echo(out)
