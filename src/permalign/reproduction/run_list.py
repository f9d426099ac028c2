"""Write a page that lists all configs that were ever run, with their scores averaged over seeds."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from permalign.evaluation.significance import Spread
from permalign.files import write_text
from permalign.reproduction.records import RunRecord
from permalign.reproduction.report import format_spread, markdown_table

INTRODUCTION = """# All runs

This page lists every config that was run, including those that no table uses. The checkpoint of a run is the one with
the best development score. Scores are means over seeds ± the sample standard deviation. Add `--seed SEED` to a command
to train one of the runs. `runs.jsonl` has all options and development scores of each run, and which examples it
answered correctly, under the name of the config and the seed.
"""
COLUMNS = ("config", "command", "seeds", "best development score", "evaluations")


def write_run_list(records: Iterable[RunRecord], folder: str | Path) -> Path:
    """Write the list of runs, ``runs.md``; returns its path."""
    by_config: dict[str, list[RunRecord]] = {}
    for record in sorted(records, key=lambda record: (record.config, record.seed)):
        by_config.setdefault(record.config, []).append(record)
    path = Path(folder) / "runs.md"
    table = markdown_table(COLUMNS, [_line(config, runs) for config, runs in by_config.items()])
    write_text(path, f"{INTRODUCTION}\n{table}\n")
    return path


def _line(config: str, runs: Sequence[RunRecord]) -> list[str]:
    changes = [word for setting in runs[0].settings for word in ("--set", setting)]
    trained = [record for record in runs if record.dev]
    dev = ""
    if trained:
        spread = Spread(tuple(record.dev["best"] for record in trained))
        dev = f"{format_spread(spread, len(runs))} {trained[0].dev['metric']} ({trained[0].dev['split']})"
    failures = [
        f"seed {record.seed} failed: {record.failure.replace('|', '/')}" for record in runs if record.failure
    ]
    return [
        f"`{config}`",
        f"`{shlex.join(['permalign', 'train', runs[0].experiment, *changes])}`",
        ", ".join(str(record.seed) for record in runs),
        dev,
        "; ".join([*_evaluations(runs), *failures]),
    ]


def _evaluations(runs: Sequence[RunRecord]) -> list[str]:
    """All evaluations of a config, by the metric that was used on the dev set."""
    keys = dict.fromkeys(key for record in runs for key in record.evaluations)
    shown = []
    for key in keys:
        values = tuple(
            record.evaluations[key]["metrics"][record.dev["metric"]]
            for record in runs
            if record.dev.get("metric") in record.evaluations.get(key, {}).get("metrics", {})
        )
        if values:
            shown.append(f"{key} {format_spread(Spread(values), len(runs))}")
    return shown
