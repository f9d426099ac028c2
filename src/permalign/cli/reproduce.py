"""``permalign reproduce``: run the cells of one of the paper's tables, and write the table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.plain import plain_endings

if TYPE_CHECKING:
    from permalign.reproduction.cells import Cell, Table
    from permalign.reproduction.grid import Outcome, Plan
    from permalign.reproduction.records import Records

HELP = """Run the cells of a table of the paper, and write it with the paper's numbers beside ours.

TABLE is table2 (arithmetic, SCAN-SP), table3 (GeoQuery), table4 (translation), table5 (answers with their reasons)
or ablation (what helps exact transduction).
What was run before is not run again; a run that was stopped goes on exactly where it was. The result is
RESULTS/TABLE.md and RESULTS/TABLE.json, one file for each run in RESULTS/runs, and RESULTS/trail.md, which lists
every run that was ever made with its score on dev.

\b
Examples:
  permalign reproduce table2 --list
  permalign reproduce table2 --cell soft/arithmetic-len --seeds 0
  permalign reproduce table3 --cell 'hard/*' --cell 'ssnt/zh-*' --budget 60
  permalign reproduce table4 --set training.processor_minutes=10
"""


@plain_endings()
def reproduce(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="table2, table3, table4, table5 or ablation.")
    ],
    cell: Annotated[
        list[str] | None,
        typer.Option(metavar="ROW/COLUMN", help="Only these cells; * for any, ROW alone for its cells."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="0,1,2", help="Which seeds [default: those of the table].")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Stop after so many minutes.", min=0.0)
    ] = None,
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Where runs are.")] = Path("runs/reproduce"),
    results: Annotated[Path, typer.Option(metavar="DIR", help="Where results are written.")] = Path(
        "results"
    ),
    processes: Annotated[
        int | None, typer.Option(help="How many runs at a time [default: one for each core].", min=1)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="Change an option of every run, to try things."),
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the cells and what was run.")] = False,
) -> None:
    """Run what is missing, and write the table."""
    from permalign.reproduction.grid import make_plan
    from permalign.reproduction.records import Records
    from permalign.reproduction.tables import get_table

    chosen = get_table(table)
    cells = chosen.select(cell or [])
    records, changes = Records(results / "runs"), settings or []
    numbers = _seeds(seeds) if seeds is not None else list(chosen.seeds)
    if show_list:
        _print_list(cells, numbers, changes, records)
        return
    plan = make_plan(cells, numbers, changes, runs, records)
    outcome = _run(plan, processes, budget)
    _write(chosen, records, results, changes)
    _end(plan, outcome)


def _seeds(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0:
        raise typer.BadParameter(f"--seeds is {text!r}, but expected numbers with commas, such as 0,1,2.")
    return list(dict.fromkeys(numbers))


def _print_list(cells: "Sequence[Cell]", seeds: list[int], settings: list[str], records: "Records") -> None:
    """Cells with the seeds that are done, and with what is trained for them."""
    from permalign.reproduction.grid import make_plan

    width = max(len(cell.name) for cell in cells)
    for cell in cells:
        done = []
        for seed in seeds:
            plan = make_plan([cell], [seed], settings, Path(), records)
            done += [str(seed)] * plan.done
        state = "cannot be run" if plan.impossible else f"{len(done)} of {len(seeds)} seeds"
        typer.echo(f"{cell.name:{width}}  {state:13}  {' '.join([cell.experiment, *cell.settings])}")


def _run(plan: "Plan", processes: int | None, budget: float | None) -> "Outcome":
    from permalign.reproduction.grid import default_processes, run_jobs

    for name, reason in plan.impossible.items():
        typer.echo(f"cannot be run: {name}: {reason}", err=True)
    typer.echo(f"{plan.done} results are there, {len(plan.jobs)} runs are to be made.", err=True)
    return run_jobs(
        plan.jobs,
        processes or default_processes(),
        minutes=budget,
        say=lambda message: typer.echo(message, err=True),
    )


def _write(table: "Table", records: "Records", folder: Path, settings: list[str]) -> None:
    from permalign.reproduction.plots import write_plots
    from permalign.reproduction.report import write_report
    from permalign.reproduction.trail import write_trail

    report = write_report(table, records, folder, settings)
    for path in (*report, *write_plots(table, records, folder, settings), write_trail(records, folder)):
        typer.echo(path)


def _end(plan: "Plan", outcome: "Outcome") -> None:
    """Say what is left, by the exit code too."""
    if outcome.left:
        typer.echo(f"{len(outcome.left)} runs are left; the same command goes on with them.", err=True)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.failed or plan.impossible:
        typer.echo(f"{len(outcome.failed) + len(plan.impossible)} could not be run; see above.", err=True)
        raise typer.Exit(1)
