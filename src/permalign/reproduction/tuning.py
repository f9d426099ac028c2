"""Tune the systems of table 3 in each column: ``python -m permalign.reproduction.tuning zh-temp``.

Every system has the same number of trials in every column, with the search of ``permalign tune``. The first candidate
is the experiment as it ships, whose run is that of table 3. All candidates are listed in ``results/tuning.jsonl``, and
the options of the best ones are written to ``tuned_systems.yaml``. Then the seeds of the table ``table3-tuned`` are
trained and evaluated with these options; the run of the chosen trial is kept for its first seed.
"""

import argparse
import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml

from permalign.errors import DataError
from permalign.files import exclusive_lock, write_lines, write_text
from permalign.reproduction.cells import Cell
from permalign.reproduction.grid import make_plan
from permalign.reproduction.records import RUNS, RunKey, RunStore
from permalign.reproduction.tables import get_table
from permalign.reproduction.tuned_systems import (
    FILE,
    SEED,
    SYSTEMS,
    TRIALS,
    Chosen,
    ranges_of,
    with_chosen_settings,
)
from permalign.reproduction.worker import run_job
from permalign.training.experiments import load_values
from permalign.training.progress_display import PlainDisplay
from permalign.training.tuning import TRIALS as LIST_OF_TRIALS
from permalign.training.tuning import tune

TRAIL = "tuning.jsonl"
"""The name of the file in the folder of results that lists all candidates."""
SHIPPED = "as shipped"
"""The name of the candidate with the options of the experiment."""
TUNED = "table3"
"""The table whose systems are tuned."""

Candidate = Mapping[str, Any]


def search(cell: Cell, folder: Path, store: RunStore) -> list[dict[str, Any]]:
    """Tune the system of a cell on its development set, with runs in a folder.

    Returns:
        The candidates, each with its settings and its best score on the development set, that of the experiment as it
        ships first.
    """
    shipped = store.find(RunKey.of(cell, SEED).name)
    if shipped is None or not shipped.dev:
        raise DataError(
            f"there is no run of {cell.name} with seed {SEED}. Make it with permalign reproduce {TUNED}.",
            store.path,
        )
    tune(
        load_values(cell.experiment),
        folder,
        settings=(*cell.settings, f"seed={SEED}"),
        ranges=ranges_of(cell.row),
        trials=TRIALS,
        study=cell.name,
        seed=SEED,
        display=PlainDisplay(),
    )
    candidates = [{"trial": SHIPPED, "state": "complete", "dev": shipped.dev["best"], "settings": []}]
    for trial in map(json.loads, (folder / LIST_OF_TRIALS).read_text(encoding="utf-8").splitlines()):
        settings = [f"{option}={value}" for option, value in trial.pop("values").items()]
        candidates.append({**trial, "settings": settings})
    return [{"cell": cell.name, **candidate, "command": command(cell)} for candidate in candidates]


def command(cell: Cell) -> str:
    """The command that repeats a search."""
    words = ["permalign", "tune", cell.experiment, "--trials", str(TRIALS), "--seed", str(SEED)]
    words += [word for setting in (*cell.settings, f"seed={SEED}") for word in ("--set", setting)]
    return shlex.join([*words, *(word for text in ranges_of(cell.row) for word in ("--range", text))])


def best_candidate(candidates: Iterable[Candidate]) -> Candidate:
    """The candidate with the best score on the development set; the first of several that are equally good."""
    return max(
        (candidate for candidate in candidates if candidate["dev"] is not None),
        key=lambda candidate: candidate["dev"],
    )


def choose(trail: Iterable[Candidate]) -> Chosen:
    """The settings of the best candidates, by system and by column."""
    by_cell: dict[str, list[Candidate]] = {}
    for candidate in trail:
        by_cell.setdefault(candidate["cell"], []).append(candidate)
    chosen: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, candidates in by_cell.items():
        system, column = name.split("/")
        chosen.setdefault(system, {})[column] = tuple(best_candidate(candidates)["settings"])
    return chosen


def write_candidates(found: Sequence[Candidate], trail: Path, file: Path) -> None:
    """Add the candidates of a cell to the trail, in the place of former ones, and write what is chosen to a file."""
    with exclusive_lock(trail.with_name(f".{trail.name}.lock"), wait=True):
        old = read_trail(trail) if trail.exists() else []
        cells = {candidate["cell"] for candidate in found}
        candidates = [candidate for candidate in old if candidate["cell"] not in cells] + list(found)
        order = list(get_table(TUNED).by_name)
        candidates.sort(key=lambda candidate: order.index(candidate["cell"]))  # trials stay in their order
        write_lines(trail, map(json.dumps, candidates))
        chosen = {
            system: {column: list(settings) for column, settings in columns.items()}
            for system, columns in choose(candidates).items()
        }
        write_text(file, yaml.safe_dump(chosen, sort_keys=False, width=float("inf")))


def read_trail(path: Path) -> list[dict[str, Any]]:
    """All candidates of all cells that were tuned."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tune_cell(name: str, runs: Path, results: Path, file: Path) -> str:
    """Tune the system of a cell, and train and evaluate the seeds of the table with the options that are chosen.

    Runs of table 3 are not trained again for an evaluation that they lack, because the new models would replace them.

    Returns:
        A line that says what was chosen.
    """
    store = RunStore(results / RUNS)
    table = get_table(TUNED)
    cell = table.by_name[name]
    folder = runs / "tuning" / name.replace("/", "-")
    found = search(cell, folder, store)
    best = best_candidate(found)
    tuned = with_chosen_settings(table, choose(found))
    if best["trial"] != SHIPPED:
        kept = runs / RunKey.of(tuned.by_name[name], SEED).name
        if not kept.exists():
            (folder / f"trial-{best['trial']:04d}").rename(kept)
        for job in make_plan(tuned.cells, tuned.seeds, (), runs, store).jobs:
            run_job(job)
    write_candidates(found, results / TRAIL, file)
    return f"{name}: {best['trial']}, {best['dev']:.1f} on dev, {' '.join(best['settings'])}"


def main() -> None:
    """Tune the systems of table 3 in the columns that are named."""
    parser = argparse.ArgumentParser(prog="python -m permalign.reproduction.tuning", description=main.__doc__)
    parser.add_argument("columns", nargs="+", metavar="COLUMN", help="a column of table 3, such as en-temp")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument(
        "--chosen", type=Path, default=Path(__file__).with_name(FILE), help="file for the chosen options"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    cells = get_table(TUNED).select(
        [f"{system}/{column}" for column in arguments.columns for system in SYSTEMS]
    )
    places = arguments.runs, arguments.results, arguments.chosen
    by_column = sorted(cells, key=lambda cell: arguments.columns.index(cell.column))
    with get_context("spawn").Pool(
        arguments.processes
    ) as pool:  # an interrupt ends it; searches can be resumed
        tuned = {cell.name: pool.apply_async(tune_cell, (cell.name, *places)) for cell in by_column}
        for name, result in tuned.items():
            try:
                print(result.get(), flush=True)
            except Exception as error:  # the other systems are tuned all the same
                print(f"{name}: failed: {error}", flush=True)


if __name__ == "__main__":
    main()
