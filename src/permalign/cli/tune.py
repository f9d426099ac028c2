"""``permalign tune``: search for good options."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors

HELP = """Search for the options that are best on dev, and write them as a file that `permalign train` takes.

Trials that fall behind are ended early. The search is kept in a database: the same command goes on with it, and with
--storage several machines share it.

\b
Examples:
  permalign tune arithmetic/hard --trials 30
  permalign tune geoquery/hard --range training.learning_rate=0.0005:0.005:log --range model.head.context=full,1,2
  permalign tune geoquery/ssnt --storage postgresql://user@host/studies --trials 200
  permalign train runs/tune-arithmetic-hard/best.yaml
"""


@report_errors()
def tune(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="An experiment, or a YAML file.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="Change an option in all trials."),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="OPTION=VALUES",
            help="Where to search: a,b,c or low:high or low:high:log [default: rates, widths and dropout].",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="How many the search shall have in all.", min=1)] = 50,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write [default: runs/tune-NAME].")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="A database of Optuna's [default: SQLite in DIR].")
    ] = None,
    study: Annotated[str | None, typer.Option(help="The name of the search [default: NAME].")] = None,
) -> None:
    """Search, and print where the best options are."""
    from permalign.errors import PermalignError

    try:
        from permalign.training.tuning import BEST
        from permalign.training.tuning import tune as search
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise PermalignError('a search needs optuna: pip install "permalign[tune]".') from None
    from permalign.training.progress_display import PlainDisplay

    out = out or Path("runs", f"tune-{Path(name).with_suffix('').as_posix().replace('/', '-')}")
    try:
        search(
            name,
            out,
            settings=settings or [],
            ranges=ranges or [],
            trials=trials,
            storage=storage,
            study=study,
            display=PlainDisplay(),
        )
    except KeyboardInterrupt:
        given: list[tuple[str, str | None]] = [("--set", one) for one in settings or []]
        given += [("--range", one) for one in ranges or []]
        given += [("--trials", str(trials)), ("--out", str(out)), ("--storage", storage), ("--study", study)]
        words = [word for option, value in given if value is not None for word in (option, value)]
        typer.echo(f"Go on with: {shlex.join(['permalign', 'tune', name, *words])}", err=True)
        raise
    if not (out / BEST).exists():
        raise PermalignError(f"no trial came to its end; see the runs in {out}.")
    typer.echo(out / BEST)
