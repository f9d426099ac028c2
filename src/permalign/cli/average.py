"""``permalign average``: average the parameters of several models."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Average the parameters of several models, such as the best checkpoints of a run, and save the result.

The result is a run with the task of the first model, which evaluate, compare, predict, explain and serve take.

A run keeps several checkpoints if it is trained with --set training.keep_checkpoints=5. Parameters of models that were
trained with different seeds have no meaningful average; make an ensemble of them instead.

\b
Examples:
  permalign average runs/geoquery-ssnt-seed-0 --out runs/averaged
  permalign average runs/a/checkpoints/step-0000400 runs/a/checkpoints/last --out runs/averaged
  permalign compare runs/a runs/averaged
"""


@report_errors()
def average(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN | MODEL...",
            help="Folders of the models to average, or a single run, whose checkpoints are averaged.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the new run.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing run in the folder.")
    ] = False,
) -> None:
    """Average the parameters of models, and save the result."""
    from permalign.training.combine_models import average, seeds_of_runs

    average(models, out, overwrite=overwrite)
    seeds = seeds_of_runs(models)
    if len(seeds) > 1:
        typer.echo(
            f"warning: these models were trained with different seeds ({', '.join(map(str, seeds))}), whose parameters "
            "have no meaningful average. Use `permalign ensemble` instead.",
            err=True,
        )
    typer.echo(out)
