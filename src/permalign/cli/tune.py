"""``permalign tune``: search for the best options (hyperparameters)."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from permalign.cli.engines import Engine
from permalign.cli.error_messages import report_errors
from permalign.cli.run_arguments import (
    Data,
    Names,
    Recipe,
    SourceColumn,
    TargetColumn,
    column_settings,
    load_candidates,
    run_name,
)

HELP = """Search for the options with the best dev metric, and write them to a YAML file for `permalign train`.

It takes what `permalign train` takes: your own data, for which it chooses a model (or --recipe does); or an experiment,
or a YAML file, which --data trains on other data.

Every trial is a training run with other values of the options. Trials whose dev metric falls behind are pruned. The
search is stored in a database: run the same command again to resume it, and use --storage to share it between machines.
Plots of the search by Optuna are written to DIR/plots: its history, the values tried, and which options matter.

\b
Examples:
  permalign tune pairs.tsv --trials 30
  permalign tune questions.csv --source-column question --target-column sql --recipe exact
  permalign tune geoquery/soft --data pairs.tsv
  permalign tune arithmetic/hard --trials 30
  permalign tune geoquery/hard --range training.learning_rate=0.0005:0.005:log --range model.head.context=full,1,2
  permalign tune geoquery/ssnt --storage postgresql://user@host/studies --trials 200
  permalign tune arithmetic/hard --trials 100 --engine ray --processes 8
  permalign train runs/tune-arithmetic-hard/best.yaml
"""


@report_errors("tune")
def tune(
    names: Names = None,
    recipe: Recipe = None,
    data: Data = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="OPTION=VALUE", help="Change an option of all trials; may be repeated."
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="OPTION=VALUES",
            help="Values to try for an option: a,b,c or low:high or low:high:log; may be repeated "
            "[default: ranges for the learning rate, sizes and dropout].",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Total number of trials, over all sessions and machines.", min=1)
    ] = 50,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write to [default: runs/tune-NAME].")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of a database for Optuna [default: an SQLite file in DIR]."),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Name of the study in the database [default: the data or the NAME].")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the search; that of the trials' training is --set seed=N.", min=0)
    ] = 0,
    engine: Annotated[
        Engine, typer.Option(help="Search in this process, or in tasks of a Ray cluster.")
    ] = Engine.LOCAL,
    processes: Annotated[
        int | None, typer.Option(help="Number of Ray tasks [default: one per core of the cluster].", min=1)
    ] = None,
) -> None:
    """Search for the best options, and print the path of the file with them."""
    from permalign.errors import PermalignError
    from permalign.training.progress_display import PlainDisplay
    from permalign.training.tuning import BEST
    from permalign.training.tuning import tune as search
    from permalign.training.tuning_plots import plot_study

    names, data, settings, ranges = names or [], data or [], settings or [], ranges or []
    columns = column_settings(source_column, target_column)
    candidates = load_candidates(names, data, recipe, [*columns, *settings], restarts=False)
    out = out or Path("runs", f"tune-{run_name(*names, *data, *([recipe] if recipe else []))}")
    name_of_study = study or " ".join([*names, *data, *([recipe] if recipe else [])])

    def command(recipe: str | None, study: str | None) -> list[str]:
        given: list[tuple[str, str | None]] = [("--recipe", recipe), *(("--data", path) for path in data)]
        given += [("--source-column", source_column), ("--target-column", target_column)]
        given += [("--set", setting) for setting in settings] + [("--range", text) for text in ranges]
        given += [("--trials", str(trials)), ("--out", str(out)), ("--storage", storage), ("--study", study)]
        given += [("--seed", str(seed) if seed else None)]
        return ["tune", *names, *(word for option, value in given if value for word in (option, value))]

    arguments = command(recipe, study)
    try:
        chosen, *others = candidates
        if others:
            chosen = _try_recipes(candidates, out)
            arguments = command(chosen, name_of_study)  # nobody has to try them again
        if engine is Engine.RAY:
            from permalign.reproduction.ray_engine import run_search_on_ray

            run_search_on_ray(arguments, out, processes, say=lambda message: typer.echo(message, err=True))
        # after a search on a cluster, this makes only the trials that are missing
        study_of_trials = search(
            candidates[chosen],
            out,
            ranges=ranges,
            trials=trials,
            storage=storage,
            study=name_of_study,
            seed=seed,
            display=PlainDisplay(),
        )
    except KeyboardInterrupt:
        again = [*arguments, *(["--engine", "ray"] if engine is Engine.RAY else [])]
        typer.echo(f"Resume with: {shlex.join(['permalign', *again])}", err=True)
        raise
    if not (out / BEST).exists():
        raise PermalignError(f"no trial finished; see the runs in {out}.")
    for picture in plot_study(study_of_trials, out / "plots"):
        typer.echo(f"wrote {picture}", err=True)
    typer.echo(out / BEST)


def _try_recipes(candidates: dict[str, dict[str, Any]], out: Path) -> str:
    """The best of several recipes for the user's own data; the runs that try them are in ``out/recipes``."""
    from permalign.options.run import RunOptions
    from permalign.training.launch import try_candidates
    from permalign.training.progress_display import Display
    from permalign.training.recipe_trials import choose_by_similarity, describe_choice

    options = {name: RunOptions.parse(values) for name, values in candidates.items()}
    similarities = try_candidates(
        options, out / "recipes", say=lambda line: typer.echo(line, err=True), display=Display()
    )
    chosen = choose_by_similarity(similarities)
    typer.echo(describe_choice(chosen, similarities), err=True)
    return chosen
