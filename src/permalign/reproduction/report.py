"""A table as Markdown and as JSON, from what its runs gave."""

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from permalign.evaluation.plots import TITLES
from permalign.evaluation.significance import Spread
from permalign.files import atomic_file
from permalign.reproduction.cells import Row, Table
from permalign.reproduction.records import Records
from permalign.reproduction.summary import CellResult, p_values, summarise

NOT_RUN = "not run"


def write_report(
    table: Table, records: Records, folder: str | Path, settings: Iterable[str] = ()
) -> tuple[Path, Path]:
    """Write ``tableN.md`` and ``tableN.json``; returns their paths."""
    settings = tuple(settings)
    results = summarise(table, records, settings)
    paths = Path(folder) / f"{table.name}.md", Path(folder) / f"{table.name}.json"
    values = as_json(table, results, settings)
    texts = as_markdown(table, results, settings), json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    for path, text in zip(paths, texts, strict=True):
        with atomic_file(path) as file:
            file.write_text(text, encoding="utf-8")
    return paths


def command_of(table: Table, cells: str | None, seeds: Sequence[int], settings: Sequence[str]) -> str:
    """What to type to make cells of a table."""
    words = ["permalign", "reproduce", table.name]
    words += ["--cell", cells] if cells else []
    words += ["--seeds", ",".join(map(str, seeds))]
    return shlex.join([*words, *(word for setting in settings for word in ("--set", setting))])


def as_json(table: Table, results: dict[str, CellResult], settings: Sequence[str]) -> dict[str, Any]:
    """Everything in the report, for programs."""
    tests = {column.key: p_values(table, results, column) for column in table.columns}
    return {
        "table": table.name,
        "title": table.title,
        "notes": list(table.notes),
        "settings": list(settings),
        "cells": [
            _cell_values(table, result, settings, *tests[result.cell.column]) for result in results.values()
        ],
    }


def _cell_values(
    table: Table,
    result: CellResult,
    settings: Sequence[str],
    baseline: str | None,
    chances: dict[str, float],
) -> dict[str, Any]:
    cell, seeds = result.cell, [record.seed for record in result.records]
    metrics = {name: spread for name in table.metrics if (spread := result.spread(name))}
    p_value = chances.get(cell.row)
    return {
        "cell": cell.name,
        "paper": cell.paper,
        "seeds": seeds,
        **{
            name: {"mean": spread.mean, "deviation": spread.deviation, "values": list(spread.values)}
            for name, spread in metrics.items()
        },
        "baseline": baseline if p_value is not None else None,
        "p_value": p_value,
        "problem": result.problem,
        "command": command_of(table, cell.name, seeds or table.seeds, settings),
        "runs": [
            {
                "run": record.run,
                "train": record.command,
                "commit": record.environment.get("commit"),
                "dev": {name: record.dev[name] for name in ("split", "metric", "best", "step")},
                "training": record.training,
                "test": {
                    name: value
                    for name, value in record.tests[cell.trial.key].items()
                    if name not in table.metrics
                },
                "machine": _machine(record.environment),
            }
            for record in result.records
        ],
    }


def as_markdown(table: Table, results: dict[str, CellResult], settings: Sequence[str]) -> str:
    """The report for people."""
    parts = [f"# {table.title}", f"Made by `{command_of(table, None, table.seeds, settings)}`."]
    if settings:
        parts.append(f"**Every run was changed by {', '.join(f'`{one}`' for one in settings)}.**")
    parts += table.notes
    if table.metrics:
        parts.append(
            "Mean over seeds ± sample deviation, (number of seeds where not "
            f"{len(table.seeds)}), *the paper's number*. † not in the paper. A cell that was not run says so."
        )
        parts += [_grid(table, results, metric) for metric in table.metrics]
        parts += _significance(table, results)
    else:
        parts += _examples(table, results)
    parts += [_origin(table, results, settings), _machines(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _title(row: Row) -> str:
    return f"{row.title} †" if row.ours else row.title


def _markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    ruler = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *lines))


def _grid(table: Table, results: dict[str, CellResult], metric: str) -> str:
    lines = []
    for row in table.rows:
        line = [_title(row)]
        for column in table.columns:
            cell = table.cell(row, column)
            main = metric == table.metrics[0]
            line.append("" if cell is None else _shown(table, results[cell.name], metric, paper=main))
        lines.append(line)
    head = ["", *(column.title for column in table.columns)]
    return f"## {TITLES.get(metric, metric)}\n\n{_markdown_table(head, lines)}"


def _shown(table: Table, result: CellResult, metric: str, paper: bool) -> str:
    spread = result.spread(metric)
    ours = NOT_RUN if spread is None else shown_spread(spread, len(table.seeds))
    if spread is None and result.problem is not None:
        ours = "failed" if result.key is not None else NOT_RUN
    number = result.cell.paper
    return ours if number is None or not paper else f"{ours}, *{number:.1f}*"


def shown_spread(spread: Spread, seeds: int) -> str:
    """A mean and its deviation.

    >>> shown_spread(Spread((80.0, 90.0, 85.0)), 3), shown_spread(Spread((80.0,)), 3)
    ('85.0 ± 5.0', '80.0 (1)')
    """
    deviation = "" if spread.deviation is None else f" ± {spread.deviation:.1f}"
    count = "" if len(spread.values) == seeds else f" ({len(spread.values)})"
    return f"{spread.mean:.1f}{deviation}{count}"


def _significance(table: Table, results: dict[str, CellResult]) -> list[str]:
    found = {column: p_values(table, results, column) for column in table.columns}
    titles = {row.key: row.title for row in table.rows}
    if not any(chances for _, chances in found.values()):
        return []
    lines = [["best baseline", *(titles.get(best or "", "") for best, _ in found.values())]]
    for row in table.rows:
        chances = [chances.get(row.key) for _, chances in found.values()]
        if any(one is not None for one in chances):
            lines.append([_title(row), *("" if one is None else f"{one:.3f}" for one in chances)])
    head = ["", *(column.title for column in table.columns)]
    text = (
        "Two-sided p-values of the paired permutation test over test examples (means over seeds) against the best "
        f"baseline of the column by {TITLES[table.metrics[0]]}."
    )
    return [f"## Against the best baseline\n\n{text}\n\n{_markdown_table(head, lines)}"]


def _examples(table: Table, results: dict[str, CellResult]) -> list[str]:
    parts = []
    for result in results.values():
        row = next(row for row in table.rows if row.key == result.cell.row)
        column = next(column for column in table.columns if column.key == result.cell.column)
        parts.append(f"## {column.title}: {_title(row)}")
        if not result.records:
            parts.append(NOT_RUN)
        for example in result.tests[0]["shown"] if result.tests else ():
            lines = [
                f"source     {example['source']}",
                f"reordered  {example['reordered']}",
                f"segments   {example['source_segments']}",
                f"output     {example['output_segments'] or example['output']}",
            ]
            lines += [] if example["correct"] else [f"reference  {example['target']}"]
            parts.append(
                f"{example['id']}, {'right' if example['correct'] else 'wrong'}:\n\n```text\n"
                + "\n".join(lines)
                + "\n```"
            )
    return parts


def _origin(table: Table, results: dict[str, CellResult], settings: Sequence[str]) -> str:
    lines = []
    for name, result in results.items():
        if not result.records:
            continue
        seeds = [record.seed for record in result.records]
        dev = Spread(tuple(record.dev["best"] for record in result.records))
        limits = {record.options["training"].get("processor_minutes") for record in result.records} - {None}
        budget = "".join(f" (limit {limit:g} of processor time)" for limit in limits)
        commits = sorted({_short(record.environment.get("commit")) for record in result.records})
        lines.append(
            [
                f"`{name}`",
                ", ".join(map(str, seeds)),
                f"{shown_spread(dev, len(seeds))} ({result.records[0].dev['split']})",
                f"{result.seconds / 60:.1f}{budget}",
                ", ".join(commits),
                f"`{command_of(table, name, seeds, settings)}`",
            ]
        )
    head = ["cell", "seeds", "best on dev", "minutes, all seeds", "commit", "command"]
    text = (
        "A run that several cells share is counted in each. The file of every run is in `runs/`: its config, all its "
        "scores on dev, its test results."
    )
    parts = [f"## How each cell was made\n\n{text}\n\n{_markdown_table(head, lines)}"] if lines else []
    return "\n\n".join([*parts, *_problems(results)])


def _problems(results: dict[str, CellResult]) -> list[str]:
    """Why cells have no result, where something is known."""
    lines = [
        f"- `{name}`: {result.problem.partition(' There are:')[0]}"
        for name, result in results.items()
        if result.problem is not None
    ]
    return ["## What could not be run\n\n" + "\n".join(lines)] if lines else []


def _short(commit: object) -> str:
    """A commit as people write it, with a mark if files were changed.

    >>> _short("279bb73e0f6c1b2a-dirty")
    '279bb73e0f+'
    """
    return str(commit)[:10] + ("+" if str(commit).endswith("-dirty") else "")


def _machine(environment: dict[str, Any]) -> dict[str, Any]:
    return {name: environment.get(name) for name in ("system", "processor", "cores", "threads", "python")}


def _machines(results: dict[str, CellResult]) -> str:
    machines = {
        json.dumps(_machine(record.environment)): _machine(record.environment)
        for result in results.values()
        for record in result.records
    }
    if not machines:
        return ""
    lines = [
        f"- {one['system']}, {one['processor']}, {one['cores']} cores, {one['threads']} thread(s) for each run, "
        f"Python {one['python']}"
        for one in machines.values()
    ]
    return "## Machine\n\n" + "\n".join(lines)
