"""``permalign reproduce``: run the cells of one of the paper's tables and write the table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.engines import Engine
from permalign.cli.error_messages import report_errors

if TYPE_CHECKING:
    from permalign.reproduction.cells import Cell, Table
    from permalign.reproduction.grid import Outcome, Plan
    from permalign.reproduction.records import RunStore

HELP = """Train and evaluate the systems of a table of the paper, and write the table with the paper's numbers.

TABLE is table2 (arithmetic, SCAN-SP), table3 (GeoQuery), table4 (translation), table5 (outputs with reordered sources
and segments), or one that is not in the paper: table3-tuned (GeoQuery, with systems that are tuned in each column),
table6 (GeoQuery on the splits of other papers), ablation (exact transduction on GeoQuery) or dates.

Runs that are already recorded are not repeated, and an interrupted run is resumed exactly. Every run is recorded as a
line of RESULTS/runs.jsonl, from which the table RESULTS/TABLE.md and a list of all runs, RESULTS/runs.md, are written.

\b
Examples:
  permalign reproduce table2 --list
  permalign reproduce table2 --cell soft/arithmetic-len --seeds 0
  permalign reproduce table3 --cell 'hard/*' --cell 'ssnt/zh-*' --budget 60
  permalign reproduce table4 --set training.max_cpu_minutes=10
  permalign reproduce table2 --engine ray
"""


@report_errors()
def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="table2, table3, table3-tuned, table4, table5, table6, ablation or dates."
        ),
    ],
    cell: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW/COLUMN",
            help="Run only these cells; * matches anything, and ROW selects a whole row.",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="0,1,2", help="Seeds to run [default: the seeds of the table].")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Stop after this many minutes.", min=0.0)
    ] = None,
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the runs.")] = Path("runs/reproduce"),
    results: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results.")] = Path("results"),
    processes: Annotated[
        int | None,
        typer.Option(help="Number of runs to train at the same time [default: one per core].", min=1),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Run in processes of this machine, or as tasks of a Ray cluster.")
    ] = Engine.LOCAL,
    gpus: Annotated[
        float, typer.Option(help="GPUs for each run on a Ray cluster, such as 1 or 0.25.", min=0.0)
    ] = 0.0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=VALUE", help="Change an option of all runs; may be repeated."),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the cells with the number of finished seeds.")
    ] = False,
) -> None:
    """Run the cells that lack results, and write the table."""
    from permalign.reproduction.grid import make_plan
    from permalign.reproduction.records import RUNS, RunStore
    from permalign.reproduction.tables import get_table

    chosen = get_table(table)
    cells = chosen.select(cell or [])
    store, changes = RunStore(results / RUNS), settings or []
    chosen_seeds = _parse_seeds(seeds) if seeds is not None else list(chosen.seeds)
    plan = make_plan(cells, chosen_seeds, changes, runs, store)
    if show_list:
        _print_list(cells, len(chosen_seeds), plan)
        return
    outcome = _run(plan, processes, budget, engine, gpus)
    _write(chosen, store, results, changes)
    _report_unfinished(plan, outcome)


def _parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(number) for number in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise typer.BadParameter(
            f"--seeds is {text!r}, but expected numbers separated by commas, such as 0,1,2."
        )
    return list(dict.fromkeys(seeds))


def _print_list(cells: "Sequence[Cell]", num_seeds: int, plan: "Plan") -> None:
    """Print the cells, each with the number of finished seeds, its experiment and its settings."""
    width = max(len(cell.name) for cell in cells)
    for cell in cells:
        done = len(plan.done.get(cell.name, []))
        state = "cannot be run" if cell.name in plan.invalid else f"{done} of {num_seeds} seeds"
        typer.echo(f"{cell.name:{width}}  {state:13}  {' '.join([cell.experiment, *cell.settings])}")


def _run(plan: "Plan", processes: int | None, budget: float | None, engine: Engine, gpus: float) -> "Outcome":
    from permalign.reproduction.grid import default_processes, run_jobs

    for name, reason in plan.invalid.items():
        typer.echo(f"cannot be run: {name}: {reason}", err=True)
    typer.echo(f"{plan.num_done} results are recorded; {len(plan.jobs)} runs are still needed.", err=True)

    def say(message: str) -> None:
        typer.echo(message, err=True)

    if engine is Engine.RAY:
        from permalign.reproduction.ray_engine import run_jobs_on_ray

        return run_jobs_on_ray(plan.jobs, processes, gpus=gpus, minutes=budget, say=say)
    return run_jobs(plan.jobs, processes or default_processes(), minutes=budget, say=say)


def _write(table: "Table", store: "RunStore", folder: Path, settings: list[str]) -> None:
    from permalign.reproduction.plots import write_plots
    from permalign.reproduction.report import write_report
    from permalign.reproduction.run_list import write_run_list

    records = store.read()
    typer.echo(write_report(table, records, folder, settings))
    for path in write_plots(table, records, folder, settings):
        typer.echo(path)
    typer.echo(write_run_list(records.values(), folder))


def _report_unfinished(plan: "Plan", outcome: "Outcome") -> None:
    """Print how many runs are unfinished or failed, and set the exit code."""
    if outcome.unfinished:
        typer.echo(
            f"{len(outcome.unfinished)} runs are unfinished; run the same command again to resume them.",
            err=True,
        )
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.failed or plan.invalid:
        typer.echo(
            f"{len(outcome.failed) + len(plan.invalid)} runs or cells failed; the messages above say why.",
            err=True,
        )
        raise typer.Exit(1)
