"""The arguments that say what is trained: the user's own data, an experiment or a YAML file, and changes to them."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from permalign.cli.printing import echo
from permalign.cli.task_options import SOURCE_COLUMN_HELP, TARGET_COLUMN_HELP
from permalign.tasks.data_arguments import describe_data, is_data, short_name


class RecipeName(StrEnum):
    """The recipes for the user's own data."""

    AUTO = "auto"
    SSNT = "ssnt"
    EXACT = "exact"
    LABELLED = "labelled"
    HARD = "hard"
    SEQ2SEQ = "seq2seq"
    TAGGING = "tagging"


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DATA...|NAME|FILE]", help="Your own data; or the name of an experiment; or a YAML file."
    ),
]
Recipe = Annotated[
    RecipeName | None,
    typer.Option(
        help="Kind of model for your own data [default: auto, which chooses one that suits the data]."
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DATA",
        help="Train the experiment on this data; given twice, sources and targets as aligned files.",
    ),
]
SourceColumn = Annotated[str | None, typer.Option(metavar="NAME", help=SOURCE_COLUMN_HELP)]
TargetColumn = Annotated[str | None, typer.Option(metavar="NAME", help=TARGET_COLUMN_HELP)]


def load_candidates(
    names: list[str], data: list[str], recipe: str | None, settings: list[str], *, restarts: bool = True
) -> dict[str, dict[str, Any]]:
    """The options of a run, or of several candidates for it, by name and without defaults.

    What was chosen from the data is printed on standard error. Only the user's own data has more than one candidate,
    the recipes that are tried on it.

    Args:
        names: the user's own data, or an experiment, or a YAML file.
        data: other data for the experiment.
        recipe: the kind of model for the user's own data; None to choose one.
        settings: changes to the options, ``OPTION=VALUE``.
        restarts: whether a recipe may try several seeds.
    """
    from permalign.training.experiments import load_changed_values
    from permalign.training.recipes import load_candidates as load_recipes
    from permalign.training.recipes import load_experiment_values

    if not names and not data:
        raise typer.BadParameter(
            "your data, the name of an experiment (see permalign train --list) or a YAML file is missing."
        )
    if names and (Path(names[0]) / "config.yaml").is_file():
        raise typer.BadParameter(
            f"{names[0]} is a run. Resume it with permalign train --resume {names[0]}, or start from its options: "
            f"{Path(names[0], 'config.yaml')}."
        )
    if not names or is_data(names[0]):
        described = describe_data([*names, *data])
        candidates, lines = load_recipes(recipe or "auto", described, settings, restarts=restarts)
        _explain(lines)
        return candidates
    if len(names) > 1:
        hint = f" To train it on {names[1]}, write --data {names[1]}." if is_data(names[1]) else ""
        raise typer.BadParameter(f"{names[0]} is not a file, so {names[1]!r} is one argument too many.{hint}")
    if recipe is not None:
        raise typer.BadParameter(
            f"--recipe is for your own data, but {names[0]} is an experiment. Leave out one of them."
        )
    if not data:
        return {names[0]: load_changed_values(names[0], settings)}
    values, lines = load_experiment_values(names[0], describe_data(data), settings)
    _explain(lines)
    return {names[0]: values}


def _explain(lines: list[str]) -> None:
    for line in lines:
        echo(line, err=True)


def column_settings(source_column: str | None, target_column: str | None) -> list[str]:
    """The columns that were given, as settings.

    >>> column_settings("question", None)
    ['task.source_column="question"']
    """
    columns = {"source_column": source_column, "target_column": target_column}
    return [f"task.{name}={json.dumps(value)}" for name, value in columns.items() if value is not None]


def run_name(*names: str) -> str:
    """The name of a run, from the experiment and the files that it is trained on.

    >>> run_name("geoquery/soft"), run_name("../data/pairs.tsv.gz"), run_name("train.en", "train.de")
    ('geoquery-soft', 'pairs', 'train.en-train.de')
    """
    return "-".join(map(short_name, names))
