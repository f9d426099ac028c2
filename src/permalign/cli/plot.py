"""``permalign plot``: plot the learning curves of runs."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.formatting import with_examples

HELP = with_examples(
    "Plot the learning curves of one or more runs in one picture: the training loss, and the metric on dev.",
    "plot runs/soft",
    "plot runs/soft runs/hard --out curves.pdf",
    "plot runs/seed-* --metric token_accuracy",
)


@report_errors()
def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Picture to write (.png, .pdf or .svg).")] = Path(
        "curves.png"
    ),
    metric: Annotated[
        str | None,
        typer.Option(help="Dev metric to plot [default: the one that checkpoints are compared by]."),
    ] = None,
) -> None:
    """Write the picture, and print its path."""
    from permalign.errors import UsageError
    from permalign.evaluation.plots import plot_curves, require_format
    from permalign.training.run_summary import read_curves, summarise

    try:
        require_format(out)
    except ValueError as error:
        raise UsageError(str(error)) from None
    curves = {run.as_posix(): read_curves(run) for run in runs}
    metric = metric or next((found for run in runs if (found := summarise(run).metric)), None)
    known = sorted(
        {name.removeprefix("dev/") for run in curves.values() for name in run if name.startswith("dev/")}
    )
    if metric is not None and metric not in known:
        from permalign.errors import unknown_name

        raise UsageError(unknown_name("metric", metric, known))
    plot_curves(out, curves, metric)
    typer.echo(out)
