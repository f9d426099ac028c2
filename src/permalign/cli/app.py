"""The verbs of the command line, one module each."""

from typing import Annotated

import typer

from permalign import __version__
from permalign.cli import average, compare, data, demo, evaluate, explain, predict, serve, train, tune

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
app.command(help=demo.HELP)(demo.demo)
app.add_typer(data.app, name="data")
app.command(help=train.HELP)(train.train)
app.command(help=average.HELP)(average.average)
app.command(help=evaluate.HELP, short_help="Measure a run on the splits of its task.")(evaluate.evaluate)
app.command(help=predict.HELP, short_help="Answer sentences from standard input.")(predict.predict)
app.command(help=compare.HELP, short_help="Tell whether one system is better than another.")(compare.compare)
app.command("explain", help=explain.HELP)(explain.explain)
app.command("serve", help=serve.HELP)(serve.serve)
app.command(help=tune.HELP)(tune.tune)


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
