"""The verbs of the command line, one module each."""

from typing import Annotated

import typer

from permalign import __version__
from permalign.cli import (
    average,
    compare,
    data,
    demo,
    evaluate,
    explain,
    predict,
    reproduce,
    serve,
    train,
    tune,
)

app = typer.Typer(
    name="permalign",
    help="Sequence transduction with exact latent reorderings.\n\n\b\n"
    "Exit codes: 0 done, 1 something outside the program is wrong (the message says what),\n"
    "2 the command line is wrong, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(help=demo.HELP, short_help="Train a small model while you watch.")(demo.demo)
app.add_typer(data.app, name="data")
app.command(help=train.HELP, short_help="Train an experiment, or go on with a run.")(train.train)
app.command(help=average.HELP, short_help="Write the mean of several models.")(average.average)
app.command(help=evaluate.HELP, short_help="Measure a run on the splits of its task.")(evaluate.evaluate)
app.command(help=predict.HELP, short_help="Answer sentences from standard input.")(predict.predict)
app.command(help=compare.HELP, short_help="Tell whether one system is better than another.")(compare.compare)
app.command(help=tune.HELP, short_help="Search for good options.")(tune.tune)
app.command(help=explain.HELP, short_help="Show how an output came about.")(explain.explain)
app.command(help=serve.HELP, short_help="Open the explorer, a page for runs.")(serve.serve)
app.command(help=reproduce.HELP, short_help="Run the cells of a table of the paper.")(reproduce.reproduce)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options before the verb."""
