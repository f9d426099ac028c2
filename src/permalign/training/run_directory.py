"""A run's folder: everything a person or a program may want to know about a run, in files with plain names."""

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from os import cpu_count
from pathlib import Path

import torch
import yaml

from permalign import __version__
from permalign.errors import DataError, PermalignError
from permalign.evaluation import Report, write_predictions
from permalign.files import PARTIAL, atomic_file, atomic_folder, mirror_folder, write_text
from permalign.model import Transducer
from permalign.options.run import RunOptions
from permalign.training.experiments import load_saved_options
from permalign.training.state import Progress

PARTS = (
    "environment.json",
    "config.yaml",
    "metrics.jsonl",
    "events",
    "model",
    "checkpoints",
    "state",
    "predictions",
    "attempts",
)
DEV_PREDICTIONS = "dev.jsonl"
LOCK = ".lock"
PACKAGES = (
    "torch",
    "numpy",
    "numba",
    "accelerate",
    "safetensors",
    "sacrebleu",
    "sentencepiece",
    "transformers",
)


class RunDirectory:
    """The places in a run's folder.

    A step's checkpoint is written first, then the state that speaks of it, then what follows from that state
    (`settle`); so whatever a kill leaves behind, the last whole state and `settle` make it consistent again.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.events = self.path / "events"
        self.model = self.path / "model"
        self.checkpoints = self.path / "checkpoints"
        self.state = self.path / "state"
        self.predictions = self.path / "predictions"
        self.attempts = self.path / "attempts"

    def require_free(self, overwrite: bool = False) -> None:
        """What is there is never overwritten without being asked, and nothing but a run ever is."""
        if not self.path.exists() or _is_empty(self.path):
            return
        if not self.is_run():
            raise PermalignError(
                f"{self.path} is there and is no run, which has environment.json and a config.yaml with its options. "
                "Choose another folder with --run."
            )
        if not overwrite:
            raise PermalignError(
                f"{self.path} holds a run already. Go on with it by --resume {self.path}, begin it anew with "
                "--overwrite, or choose another folder with --run."
            )

    def is_run(self) -> bool:
        """Whether the folder holds what `create` writes; a config.yaml alone may be anybody's."""
        if not (self.path / PARTS[0]).is_file():
            return False
        try:
            self.read_options()
        except PermalignError:
            return False
        return True

    def create(self, options: RunOptions, overwrite: bool = False) -> None:
        """Begin a run; with ``overwrite``, instead of the one that is there."""
        self.require_free(overwrite)
        for name in reversed(PARTS):  # what makes it a run goes last, so that a kill leaves nothing unknown
            place = self.path / name
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        write_text(self.path / "environment.json", json.dumps(environment(), indent=2) + "\n")
        values = options.model_dump(mode="json")
        values["task"] = _from_anywhere(values["task"])
        write_text(self.config, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))

    def note(self, **facts: object) -> None:
        """Add to what is known of how the run is made."""
        place = self.path / PARTS[0]
        known = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
        write_text(place, json.dumps(known | facts, indent=2) + "\n")

    def read_options(self) -> RunOptions:
        """The options the run was begun with."""
        if not self.config.is_file():
            raise DataError("is no run: it has no config.yaml. Begin one with `permalign train`.", self.path)
        return load_saved_options(self.config)

    def checkpoint(self, step: int) -> Path:
        """Where the model of a step is kept."""
        return self.checkpoints / f"step-{step:07d}"

    def save_checkpoint(self, step: int, model: Transducer, report: Report) -> None:
        """Keep a model with its answers on dev."""
        place = self.checkpoint(step)
        if place.exists():  # of a sitting that was killed before it wrote its state
            shutil.rmtree(place)
        with atomic_folder(place) as folder:
            model.save_pretrained(folder)
            write_predictions(folder / DEV_PREDICTIONS, report)

    def settle(self, progress: Progress, model: Transducer) -> None:
        """Make everything follow from the state: the last model, the best one and its answers, no others kept."""
        for leftover in self.path.rglob(f".*{PARTIAL}"):
            if self.predictions in leftover.parent.parents:  # another process may be evaluating
                continue
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        kept = {self.checkpoint(step) for step, _ in progress.kept}
        for folder in set(self.checkpoints.glob("step-*")) - kept:
            shutil.rmtree(folder)
        last = self.checkpoints / f".now{PARTIAL}"
        model.save_pretrained(last)
        mirror_folder(last, self.checkpoints / "last", exclude=DEV_PREDICTIONS)
        shutil.rmtree(last)
        if progress.kept:
            best = self.checkpoint(progress.kept[0][0])
            mirror_folder(best, self.model, exclude=DEV_PREDICTIONS)
            with atomic_file(self.predictions / DEV_PREDICTIONS) as file:
                shutil.copyfile(best / DEV_PREDICTIONS, file)


def _from_anywhere(task: Mapping[str, object]) -> dict[str, object]:
    """A task's options with whole paths, so that a run finds its data wherever it is resumed or evaluated."""
    places = ("path", "source_file", "target_file", "data_dir")
    whole = {name: str(Path(str(task[name])).absolute()) for name in places if task.get(name) is not None}
    return {**task, **whole}


def _is_empty(path: Path) -> bool:
    """Whether nothing is lost by writing here; a run that was killed while it began left what it was writing."""
    return path.is_dir() and all(
        name.name.endswith(PARTIAL) or name.name in (PARTS[0], LOCK) for name in path.iterdir()
    )


def environment() -> Mapping[str, object]:
    """What a run is made with: versions, machine, and the commit if the package stands in a repository."""
    return {
        "permalign": __version__,
        "commit": _commit(),
        "command": sys.argv,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerators": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit, marked if the package itself (not what lies around it) differs from it."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        commit, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "."])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changes else commit
