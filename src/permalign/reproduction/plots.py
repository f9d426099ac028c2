"""Plots of results: accuracy by depth, accuracy by system, learning curves, cost by sentence length."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from permalign.errors import PermalignError
from permalign.evaluation.plots import TITLES
from permalign.files import atomic_file
from permalign.reproduction.cells import Table
from permalign.reproduction.records import RunRecord
from permalign.reproduction.summary import CellResult, summarize
from permalign.reproduction.tables import DEEPER, DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTHS = {7: "arithmetic-len"} | {depth: f"arithmetic-depth-{depth}" for depth in DEEPER + DEEPEST}
SIZE = re.compile(r"n=(\d+), B=(\d+)")
LABEL_WIDTH = 48  # of the names of systems, in characters


def write_plots(
    table: Table, records: Mapping[str, RunRecord], folder: str | Path, settings: Iterable[str] = ()
) -> tuple[Path, ...]:
    """Write all plots of a table that have results to show; returns their paths."""
    results = summarize(table, records, settings)
    keys = {column.key for column in table.columns}
    written = []
    if set(DEPTHS.values()) <= keys and (path := plot_depths(Path(folder) / "depth.png", table, results)):
        written.append(path)
    temp = [column for column in table.columns if column.key.endswith("-temp") and table.name == "table3"]
    if temp and (
        path := plot_systems(Path(folder) / "temp.png", table, results, [column.key for column in temp])
    ):
        written.append(path)
    if "bleu" in table.metrics and (
        path := plot_learning_curves(Path(folder) / "learning-curves.png", table, results)
    ):
        written.append(path)
    return tuple(written)


def plot_depths(path: Path, table: Table, results: Mapping[str, CellResult]) -> Path | None:
    """Plot the accuracy of every system against the depth of expressions, with the standard deviation as error bars.

    A system that differs from another one only in its decoding (Viterbi) is left out, because their lines would
    overlap.
    """
    metric = table.metrics[0]
    lines = {}
    keys = {row.key for row in table.rows}
    for row in table.rows:
        if row.key.removesuffix("-viterbi") in keys - {row.key}:
            continue
        points = [
            (depth, spread.mean, spread.deviation or 0.0)
            for depth, column in DEPTHS.items()
            if (result := results.get(f"{row.key}/{column}")) and (spread := result.spread(metric))
        ]
        if points:
            lines[row.title] = points
    if not lines:
        return None
    with _axes(path, (11.0, 5.5)) as axes:
        for number, (title, points) in enumerate(lines.items()):
            depths, means, deviations = zip(*points, strict=True)
            style = {"color": f"C{number % 10}", "linestyle": "-" if number < 10 else "--"}
            shifted = [
                depth + 0.03 * (number - len(lines) / 2) for depth in depths
            ]  # so that bars do not overlap
            bars = axes.errorbar(shifted, means, deviations, marker="o", capsize=2, elinewidth=0.7, **style)
            bars.set_label(title)
        axes.set_xticks(list(DEPTHS))
        axes.set_xlabel("derivation depth; training has up to 6")
        axes.set_ylabel(TITLES[metric])
        axes.set_ylim(-2, 102)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    return path


def plot_systems(
    path: Path, table: Table, results: Mapping[str, CellResult], columns: Sequence[str]
) -> Path | None:
    """Plot the accuracy of systems as horizontal bars; a line marks the paper's number.

    Systems that were not run in all of the columns are left out.
    """
    metric = table.metrics[0]
    measured = {name for name, result in results.items() if result.spread(metric)}
    shown = [row for row in table.rows if all(f"{row.key}/{column}" in measured for column in columns)]
    if not shown:
        return None
    titles = {column.key: column.title for column in table.columns}
    height = 0.8 / len(columns)
    with _axes(path, (12.0, 0.45 * len(shown) + 1.5)) as axes:
        for number, column in enumerate(columns):
            color = f"C{number}"
            for index, row in enumerate(shown):
                y = index + (number - (len(columns) - 1) / 2) * height
                result = results.get(f"{row.key}/{column}")
                if result is None:
                    continue
                if spread := result.spread(metric):
                    deviation = spread.deviation or 0.0
                    axes.barh(y, spread.mean, height, xerr=deviation, color=color, capsize=2)
                if result.cell.paper is not None:
                    axes.vlines(result.cell.paper, y - height / 2, y + height / 2, color="black")
            axes.barh(0, 0, color=color, label=titles[column])
        axes.plot([], [], color="black", label="the paper's number")
        axes.set_yticks(range(len(shown)), [fill(row.title, LABEL_WIDTH) for row in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel(TITLES[metric])
        axes.legend(ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return path


def plot_learning_curves(path: Path, table: Table, results: Mapping[str, CellResult]) -> Path | None:
    """Plot the dev metric of every system against CPU minutes of training, with one panel for each column.

    Shows the first seed of each cell. Records have the CPU time of the whole run, of which every step gets its share.
    """
    by_column = {
        column: {
            row: result.records[0]
            for row in table.rows
            if (result := results.get(f"{row.key}/{column.key}")) and result.records
        }
        for column in table.columns
    }
    shown = {column: records for column, records in by_column.items() if records}
    if not shown:
        return None
    with _panels(path, (1.5 + 5.5 * len(shown), 4.5), len(shown)) as panels:
        for axes, (column, records) in zip(panels, shown.items(), strict=True):
            for number, row in enumerate(table.rows):
                if row not in records:
                    continue
                record = records[row]
                minutes_per_step = record.training["cpu_seconds"] / 60 / record.training["steps"]
                points = [(step * minutes_per_step, score) for step, score in record.dev["scores"]]
                axes.plot(*zip(*points, strict=True), marker=".", color=f"C{number}", label=row.title)
            metric = next(iter(records.values())).dev["metric"]
            axes.set_title(column.title)
            axes.set_xlabel("CPU minutes of training")
            axes.set_ylabel(f"{TITLES[metric]} on the development set, greedy")
            axes.legend(loc="lower right", fontsize="small")
    return path


def plot_cost(path: Path, benchmarks: Path) -> Path:
    """Plot the time of a training step per sentence against the sentence length, from the results of `make bench`."""
    series = cost_by_length(json.loads(benchmarks.read_text(encoding="utf-8"))["measurements"])
    with _axes(path, (6.4, 4.8)) as axes:
        for name, points in series.items():
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([25, 40, 60, 80], ["25", "40", "60", "80"])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("source length (tokens)")
        axes.set_ylabel("seconds for one sentence")
        axes.legend()
    return path


def cost_by_length(measurements: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Pairs of sentence length and seconds per sentence, for the paper's method and for permalign."""
    series: dict[str, dict[int, float]] = {"the paper's method": {}, "permalign": {}}
    for measurement in measurements:
        details, size = measurement["details"], SIZE.search(measurement["what"])
        if measurement["name"] in ("paper-25", "paper-41") and size is not None:
            length, batch_size = int(size[1]), int(size[2])
            series["the paper's method"][length] = details["paper seconds"] / batch_size
            series["permalign"][length] = details["permalign seconds"] / batch_size
        elif measurement["name"] == "doubling":
            batch_size = int(measurement["what"].partition("B=")[2].partition(":")[0])
            for length in (40, 80):
                series["permalign"][length] = details[f"seconds at {length}"] / batch_size
    return {name: sorted(points.items()) for name, points in series.items()}


@contextmanager
def _axes(path: Path, size: tuple[float, float]) -> "Iterator[Any]":
    """Yield axes to draw on, and write the figure to ``path`` afterwards."""
    with _panels(path, size, 1) as (axes,):
        yield axes


@contextmanager
def _panels(path: Path, size: tuple[float, float], count: int) -> "Iterator[Sequence[Any]]":
    """Yield several axes beside each other, and write the figure to ``path`` afterwards."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PermalignError('Plots need matplotlib: pip install "permalign[training]".') from None
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, count, squeeze=False)[0]
    for axes in panels:
        axes.grid(alpha=0.3)
    yield panels
    with atomic_file(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix.removeprefix("."))
