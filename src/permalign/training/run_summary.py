"""What the files of a run tell about it, read without loading its model."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from permalign.errors import DataError, PermalignError, excerpt
from permalign.files import read_json
from permalign.training.experiments import load_values

CONFIG, ENVIRONMENT, METRICS = "config.yaml", "environment.json", "metrics.jsonl"

COMBINED = "combined"
"""The entry of environment.json that lists the models which a run was made of, by the method that combined them."""


@dataclass(frozen=True)
class RunSummary:
    """A line about a run.

    Attributes:
        path: the folder of the run.
        task: the name of its task.
        model: its reorderer and its head; or the models that it was made of.
        metric: the dev metric that checkpoints are compared by; None before the first evaluation.
        best: the best value of that metric.
        step: the last step that was logged; None for a model that was made of others.
        max_steps: the number of steps it was meant to have, if it was given as a number of steps.
        seconds: the time since anything was logged.
        size: the size of its files in bytes.
    """

    path: str
    task: str
    model: str
    metric: str | None
    best: float | None
    step: int | None
    max_steps: int | None
    seconds: float
    size: int


def find_runs(folder: str | Path) -> list[RunSummary]:
    """Summarise all runs in a folder and its subfolders, the most recent first.

    Raises:
        DataError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(
            "there is no such folder. Runs are in `runs` unless --run named another folder.", folder
        )
    return sorted(map(summarise, _run_folders(folder)), key=lambda run: run.seconds)


def _run_folders(folder: Path) -> Iterator[Path]:
    """The runs in a folder; the attempts of a run are part of it."""
    if (folder / ENVIRONMENT).is_file() and (folder / CONFIG).is_file():
        yield folder
        return
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
            yield from _run_folders(child)


def summarise(folder: str | Path) -> RunSummary:
    """Summarise a run; what cannot be read is left out."""
    folder = Path(folder)
    try:
        options: Mapping[str, Any] = load_values(str(folder / CONFIG))
    except PermalignError:
        options = {}
    dev = [(step, numbers) for step, kind, numbers in _records(folder) if kind == "dev"]
    metric = next(iter(dev[0][1]), None) if dev else None
    scores = [float(numbers[metric]) for _, numbers in dev if metric in numbers] if metric else []
    files = [path for path in folder.rglob("*") if path.is_file()]
    changed = [folder / name for name in (METRICS, ENVIRONMENT, CONFIG) if (folder / name).is_file()]
    max_steps = _get(options, "training", "max_steps")
    parts = (_get(options, "model", part, "kind") or "?" for part in ("reorderer", "head"))
    methods = read_facts(folder).get(COMBINED, {})
    return RunSummary(
        path=folder.as_posix(),
        task=str(_get(options, "task", "name") or "?"),
        model=", ".join([f"{method} of {models}" for method, models in methods.items()] or parts),
        metric=metric,
        best=max(scores, default=None),
        step=None if methods else max((step for step, _, _ in _records(folder)), default=0),
        max_steps=max_steps if isinstance(max_steps, int) else None,
        seconds=max(0.0, time.time() - changed[0].stat().st_mtime) if changed else 0.0,
        size=sum(path.stat().st_size for path in files),
    )


def read_facts(folder: Path) -> dict[str, Any]:
    """What environment.json says about a run; nothing if it is missing or damaged."""
    try:
        known = read_json(folder / ENVIRONMENT)
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def read_curves(folder: str | Path) -> dict[str, list[tuple[int, float]]]:
    """The learning curves of a run: by ``train/loss``, ``dev/exact_match`` and so on, pairs of step and value.

    Raises:
        DataError: the folder has no records of training.
    """
    folder = Path(folder)
    if COMBINED in read_facts(folder):
        raise DataError("is made of other models and was not trained, so it has no learning curve.", folder)
    if not (folder / METRICS).is_file():
        raise DataError(
            f"has no {METRICS}; expected the folder of a run that `permalign train` wrote.", folder
        )
    curves: dict[str, list[tuple[int, float]]] = {}
    for step, kind, numbers in _records(folder):
        for name, number in numbers.items():
            curves.setdefault(f"{kind}/{name}", []).append((step, float(number)))
    if not curves:
        raise DataError("has no records yet; the first follows after training.log_every steps.", folder)
    return curves


def _records(folder: Path) -> Iterator[tuple[int, str, dict[str, float]]]:
    """Step, kind and numbers of each record; lines that are being written, or cannot be read, are skipped."""
    path = folder / METRICS
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for line in text.splitlines():
        try:
            record = json.loads(line)
            step, kind = int(record.pop("step")), str(record.pop("kind"))
            numbers = {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            continue
        yield step, kind, numbers


def _get(options: Any, *path: str) -> Any:
    for name in path:
        options = options.get(name) if isinstance(options, Mapping) else None
    return excerpt(options) if isinstance(options, dict | list) else options
