"""The commands of the command line, one module each."""

import os
from typing import Annotated

import typer

from permalign import __version__
from permalign.cli import (
    align,
    average,
    compare,
    data,
    demo,
    doctor,
    ensemble,
    evaluate,
    explain,
    models,
    plot,
    predict,
    profile,
    reproduce,
    runs,
    schema,
    serve,
    train,
    tune,
)
from permalign.cli.error_messages import OneLineErrors, report_errors
from permalign.plugins import import_plugins

PLUGINS = "PERMALIGN_PLUGINS"


def _with_hyphens(name: str) -> str:
    """The name of an option or command as it is spelled here; options of a config are spelled with underscores."""
    return name.replace("_", "-")


app = typer.Typer(
    name="permalign",
    cls=OneLineErrors,
    context_settings={"token_normalize_func": _with_hyphens},
    help="Sequence transduction with exact latent reorderings.\n\n\b\n"
    "Exit codes: 0 success, 1 an error that the message explains, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(help=demo.HELP, short_help="Train a small model on arithmetic as a demonstration.")(demo.demo)
app.add_typer(data.app, name="data")
app.command(help=train.HELP, short_help="Train a model, or resume a run.")(train.train)
app.command(help=average.HELP, short_help="Average the weights of several models.")(average.average)
app.command(help=ensemble.HELP, short_help="Combine several models into an ensemble.")(ensemble.ensemble)
app.command(help=evaluate.HELP, short_help="Evaluate a run on splits of its task.")(evaluate.evaluate)
app.command(help=predict.HELP, short_help="Predict outputs for sentences from standard input.")(
    predict.predict
)
app.command(help=align.HELP, short_help="Align the words of sentences and given outputs.")(align.align)
app.command(help=compare.HELP, short_help="Compare two systems, with significance tests.")(compare.compare)
app.command(help=tune.HELP, short_help="Search for the best options (hyperparameters).")(tune.tune)
app.command(help=explain.HELP, short_help="Show how a model arrives at its output.")(explain.explain)
app.command(help=models.HELP, short_help="List the models that come with permalign.")(models.models)
app.command(help=serve.HELP, short_help="Serve the explorer, a web page about runs.")(serve.serve)
app.command(help=reproduce.HELP, short_help="Reproduce a table of the paper.")(reproduce.reproduce)
app.command(help=runs.HELP, short_help="List the runs in a folder.")(runs.runs)
app.command(help=plot.HELP, short_help="Plot the learning curves of runs.")(plot.plot)
app.command(help=profile.HELP, short_help="Measure where the time of a step goes.")(profile.profile)
app.command(help=schema.HELP, short_help="Print the JSON schema of configs, for editors.")(schema.schema)
app.command(help=doctor.HELP, short_help="Examine the installation.")(doctor.doctor)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="MODULE | FILE.py",
            envvar=PLUGINS,
            help="Import a module that registers parts; may be repeated. Installed plug-ins need no import.",
        ),
    ] = None,
) -> None:
    """Options that come before the command."""
    if plugin:
        with report_errors():
            import_plugins(plugin)
        os.environ[PLUGINS] = " ".join(plugin)  # for the processes that a command starts
