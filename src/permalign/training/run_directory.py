"""The folder of a run: configuration, environment, metrics, checkpoints, state and predictions."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from os import cpu_count
from pathlib import Path
from typing import Any

import torch
import yaml

from permalign import __version__
from permalign.errors import DataError, PermalignError, similar_path
from permalign.evaluation import Report, write_predictions
from permalign.files import (
    CHECKSUMS,
    PARTIAL,
    DamagedFileError,
    atomic_file,
    atomic_folder,
    has_checksums,
    mirror_folder,
    read_checksums,
    read_json,
    record_checksums,
    require_unchanged,
    restore_files,
    write_checksums,
    write_text,
)
from permalign.models.base import Model
from permalign.models.saving import WEIGHTS
from permalign.options.renames import translate_options
from permalign.options.run import RunOptions
from permalign.plugins import require_plugins
from permalign.tasks.hub_datasets import PREFIX
from permalign.tensor_files import read_shapes
from permalign.training.experiments import load_saved_options
from permalign.training.model_card import CARD, model_card
from permalign.training.run_summary import COMBINED, ENVIRONMENT, read_facts
from permalign.training.state import (
    Checksums,
    Progress,
    damaged_state_error,
    read_kept_checksums,
    read_progress,
    step_folders,
    step_of,
)

EXAMPLES = "examples.txt"
"""A file with sentences that the explorer offers, one per line; only combined models have it."""
CONTENTS = (
    ENVIRONMENT,
    "config.yaml",
    "metrics.jsonl",
    "events",
    "wandb",
    "mlflow",
    "model",
    "checkpoints",
    "state",
    "predictions",
    "attempts",
    EXAMPLES,
)
DEV_PREDICTIONS = "dev.jsonl"
CANDIDATES = "candidates"
"""The entry of environment.json with the options of recipes that are to be tried before the run itself begins."""
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
    """The files and folders of a run.

    A checkpoint is written first, then the state that refers to it, then all files that can be derived from that state
    (`settle`). So whenever the process is killed, `settle` makes the files consistent with the latest complete state.

    The files of every state, checkpoint and model have their checksums beside them. If the latest state or one of its
    checkpoints is damaged, the run is resumed from the state before it (`find_state`), whose own checkpoints are kept
    as long as it is.
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

    @property
    def is_attempt(self) -> bool:
        """Whether this is a short run inside another one, such as one that tries a seed."""
        folder = self.path.parent
        return folder.name == self.attempts.name and (folder.parent / ENVIRONMENT).is_file()

    def _similar(self) -> str:
        return "" if self.path.exists() else similar_path(self.path)

    def require_free(self, overwrite: bool = False) -> None:
        """Raise an error unless the folder is empty or contains a run that may be overwritten."""
        if not self.path.exists() or _is_empty(self.path):
            return
        if not self.is_run():
            raise PermalignError(
                f"{self.path} exists but is not a run: it has no environment.json, or no config.yaml with the options "
                "of a run. Choose another folder with --run."
            )
        if not overwrite:
            raise PermalignError(
                f"{self.path} already contains a run. Resume it with --resume {self.path}, delete it and start again "
                "with --overwrite, or choose another folder with --run."
            )

    def is_run(self) -> bool:
        """Whether the folder contains a run; a config.yaml alone may belong to another program."""
        if not (self.path / ENVIRONMENT).is_file():
            return False
        try:
            self.read_options()
        except PermalignError:
            return False
        return True

    def create(
        self, options: RunOptions, overwrite: bool = False, facts: Mapping[str, object] | None = None
    ) -> None:
        """Create a run; with ``overwrite``, an existing run is deleted first; ``facts`` go to environment.json."""
        self.require_free(overwrite)
        for name in reversed(
            CONTENTS
        ):  # the files that identify a run are deleted last, in case the process is killed
            path = self.path / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        known = {**environment(), "plugins": options.plugins(), **(facts or {})}
        write_text(self.path / ENVIRONMENT, json.dumps(known, indent=2) + "\n")
        self._write_config(options)

    def _write_config(self, options: RunOptions) -> None:
        values = yaml.safe_dump(saved_values(options), sort_keys=False, allow_unicode=True)
        write_text(self.config, values)

    def candidates(self) -> dict[str, RunOptions]:
        """The recipes to try before one of them is chosen, by name; none if the run has its options already."""
        known = self.facts().get(CANDIDATES)
        return {
            name: RunOptions.parse(translate_options(values)[0])
            for name, values in (known.items() if isinstance(known, dict) else ())
        }

    def choose(self, options: RunOptions, **facts: object) -> None:
        """Give a run the options of one of its candidates; it has no candidates from now on.

        If the process is killed between the two files, the run is resumed with its candidates, and the same is chosen.
        """
        self._write_config(options)
        known = {name: value for name, value in self.facts().items() if name != CANDIDATES}
        write_text(self.path / ENVIRONMENT, json.dumps(known | facts, indent=2) + "\n")

    def note(self, **facts: object) -> None:
        """Add facts to environment.json."""
        write_text(self.path / ENVIRONMENT, json.dumps(self.facts() | facts, indent=2) + "\n")

    def facts(self) -> dict[str, Any]:
        """What environment.json says; nothing if it is missing or damaged."""
        return read_facts(self.path)

    def require_trainable(self) -> None:
        """Raise an error if the model was made of other models, and has no training that could be resumed."""
        if COMBINED in self.facts():
            raise DataError(
                "is made of other models, and cannot be trained further. Resume their runs instead.",
                self.path,
            )

    def read_options(self) -> RunOptions:
        """The options that the run was started with."""
        if not self.config.is_file():
            raise DataError(
                f"is not a run: it has no config.yaml. Start one with `permalign train`.{self._similar()}",
                self.path,
            )
        require_plugins(self.facts().get("plugins"), self.path)
        return load_saved_options(self.config)

    def checkpoint(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.checkpoints / f"step-{step:07d}"

    def save_checkpoint(self, step: int, model: Model, report: Report) -> None:
        """Save the model of a step as a checkpoint, together with its predictions for the dev set."""
        path = self.checkpoint(step)
        if path.exists():  # left by a session that was killed before it saved its state
            shutil.rmtree(path)
        with atomic_folder(path) as folder:
            model.save_pretrained(folder)
            write_text(folder / CARD, self._card({self.read_options().dev: report.metrics}))
            write_predictions(folder / DEV_PREDICTIONS, report)
            record_checksums(folder, [DEV_PREDICTIONS])

    def _card(self, scores: Mapping[str, Mapping[str, float]]) -> str:
        try:
            known = read_json(self.path / ENVIRONMENT)
        except (OSError, ValueError):
            known = {}
        return model_card(self.read_options(), known, scores)

    def find_state(self) -> tuple[Path | None, list[str]]:
        """Find the latest state that is intact, together with the checkpoints that it refers to.

        Returns:
            The folder of the state, None for a run that has none yet; and a line about each damaged file.

        Raises:
            DataError: no state is intact.
        """
        notes: list[str] = []
        reasons: list[str] = []
        states = step_folders(self.state)
        for state in states:
            try:
                require_unchanged(state)
                self._return_checkpoints(state)
                notes += self._restore_checksums(state)
                for step, _ in read_progress(state).kept:
                    notes += restore_files(self.checkpoint(step), [self.model, self.predictions])
                    self._require_checkpoint(step)
            except DataError as error:
                reasons.append(error.reason if isinstance(error, DamagedFileError) else str(error))
                notes.append(reasons[-1])
                continue
            if state != states[0]:
                notes.append(f"the run is resumed from the state before, of step {step_of(state)}")
            return state, notes
        if states:
            raise damaged_state_error(states[0], reasons[0])
        return None, []

    def kept_checksums(self, progress: Progress) -> Checksums:
        """The checksums of the checkpoints that are kept, which are saved with the state."""
        found: Checksums = {}
        for step, _ in progress.kept:
            with suppress(DamagedFileError):
                found[self.checkpoint(step).name] = read_checksums(self.checkpoint(step))
        return {name: checksums for name, checksums in found.items() if checksums}

    def _restore_checksums(self, state: Path) -> list[str]:
        """Write the checksums of kept checkpoints again where they are not those that were saved with a state.

        Returns:
            A line about each file of checksums that was written.
        """
        notes = []
        for name, checksums in read_kept_checksums(state).items():
            folder = self.checkpoints / name
            if not has_checksums(folder, checksums):
                write_checksums(folder, checksums)
                notes.append(
                    f"{folder / CHECKSUMS} was damaged and is written again by the state {state.name}"
                )
        return notes

    def _require_checkpoint(self, step: int) -> None:
        """Require that a checkpoint is complete and intact."""
        folder = self.checkpoint(step)
        require_unchanged(folder)
        for name in (WEIGHTS, DEV_PREDICTIONS):
            if not (folder / name).is_file():
                raise DataError("is missing.", folder / name)
        read_shapes(folder / WEIGHTS)  # for a checkpoint that was saved before there were checksums

    def _return_checkpoints(self, state: Path) -> None:
        """Bring back the checkpoints that only this state refers to."""
        for folder in step_folders(state / "checkpoints"):
            if not (self.checkpoints / folder.name).exists():
                os.replace(folder, self.checkpoints / folder.name)

    def _drop_checkpoints(self, progress: Progress) -> None:
        """Remove the checkpoints that are no longer kept; those that the state before refers to are put into it."""
        before = next((state for state in step_folders(self.state) if step_of(state) < progress.step), None)
        try:
            needed = set() if before is None else {step for step, _ in read_progress(before).kept}
        except DataError:  # it is damaged, so the run cannot go back to it
            needed = set()
        kept_steps = {step for step, _ in progress.kept}
        for folder in step_folders(self.checkpoints):
            if step_of(folder) in kept_steps:
                continue
            if before is not None and step_of(folder) in needed:
                place = before / "checkpoints" / folder.name
                place.parent.mkdir(exist_ok=True)
                if place.exists():
                    shutil.rmtree(place)
                os.replace(folder, place)
            else:
                shutil.rmtree(folder)

    def settle(self, progress: Progress, model: Model) -> None:
        """Make the last model, the best model, its predictions and the checkpoints consistent with the saved state."""
        for leftover in self.path.rglob(f".*{PARTIAL}"):
            if self.predictions in leftover.parent.parents:  # another process may be evaluating
                continue
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        self._drop_checkpoints(progress)
        last = self.checkpoints / f".now{PARTIAL}"
        model.save_pretrained(last)
        mirror_folder(last, self.checkpoints / "last", exclude=DEV_PREDICTIONS)
        shutil.rmtree(last)
        if progress.kept:
            best = self.checkpoint(progress.kept[0][0])
            mirror_folder(best, self.model, exclude=DEV_PREDICTIONS)
            with atomic_file(self.predictions / DEV_PREDICTIONS) as file:
                shutil.copyfile(best / DEV_PREDICTIONS, file)


def saved_values(options: RunOptions) -> dict[str, Any]:
    """The options of a run as they are saved, with absolute paths."""
    values = options.model_dump(mode="json")
    return {**values, "task": with_absolute_paths(values["task"])}


def with_absolute_paths(task: Mapping[str, object]) -> dict[str, object]:
    """Make the paths in a task's options absolute, so that a run can be resumed and evaluated from any folder."""
    names = ("path", "source_file", "target_file", "data_dir")
    absolute = {
        name: str(Path(str(task[name])).absolute())
        for name in names
        if task.get(name) is not None and not str(task[name]).startswith(PREFIX)
    }
    return {**task, **absolute}


def _is_empty(path: Path) -> bool:
    """Whether the folder is empty, apart from the files of a run that was killed while it was created."""
    return path.is_dir() and all(
        child.name.endswith(PARTIAL) or child.name in (ENVIRONMENT, LOCK) for child in path.iterdir()
    )


def environment() -> Mapping[str, object]:
    """The versions of all packages, the machine, and the commit if the package is in a git repository."""
    return {
        "permalign": __version__,
        "commit": _commit(),
        "command": sys.argv,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: installed for name in PACKAGES if (installed := _version(name))},
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerators": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The current commit, with the suffix ``-dirty`` if the package has uncommitted changes."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    try:
        commit, changes = (
            subprocess.run([*git, *arguments], capture_output=True, text=True, check=True).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "."])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changes else commit
