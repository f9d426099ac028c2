"""``permalign runs``: list the runs in a folder."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.formatting import print_columns, with_examples
from permalign.cli.printing import echo

if TYPE_CHECKING:
    from permalign.training.run_summary import RunSummary

HELP = with_examples(
    "List the runs in a folder and its subfolders, the most recent first: task, model, best dev metric, steps, age and "
    "size.",
    "runs",
    "runs runs/tune-arithmetic-hard",
    "runs --json | jq -s 'max_by(.best)'",
)
UNITS = (("d", 86400), ("h", 3600), ("min", 60))


@report_errors()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder to look in.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
) -> None:
    """Print a table of runs."""
    from permalign.training.run_summary import find_runs

    found = find_runs(folder)
    if as_json:
        for run in found:
            echo(json.dumps(asdict(run), ensure_ascii=False))
        return
    if not found:
        echo(f"permalign: there are no runs in {folder}. Start one with `permalign train`.", err=True)
        return
    print_columns(
        [("RUN", "TASK", "MODEL", "BEST ON DEV", "STEPS", "AGE", "SIZE"), *map(_row, found)], numbers_from=3
    )


def _row(run: "RunSummary") -> tuple[str, ...]:
    best = "-" if run.best is None else f"{run.metric} {run.best:.2f}"
    steps = "-" if run.step is None else f"{run.step}"
    if run.step is not None and run.max_steps is not None:
        steps += f"/{run.max_steps}"
    return (run.path, run.task, run.model, best, steps, _age(run.seconds), f"{run.size / 1e6:.1f} MB")


def _age(seconds: float) -> str:
    """The age in the largest unit that fits, such as ``3 h``."""
    for unit, length in UNITS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
