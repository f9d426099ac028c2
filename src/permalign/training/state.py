"""The saved training state, from which a run is resumed exactly.

It consists of JSON and safetensors files, so that loading it never executes code. It contains no state of random
generators, because they are seeded anew in every step (`seed_step`), and no learning rate, because that is a function
of the step.
"""

import hashlib
import json
import random
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from permalign.errors import DataError
from permalign.files import (
    PARTIAL,
    atomic_folder,
    read_json,
    record_checksums,
    remove_folder,
    require_unchanged,
    write_text,
)
from permalign.options.renames import rename_parameters
from permalign.tensor_files import read_tensors, write_tensors
from permalign.text.batch_sampler import BucketSampler
from permalign.training.resume_check import ResumeConditions

STATE, WEIGHTS, OPTIMIZER = "state.json", "model.safetensors", "optimiser.safetensors"

KEPT_STATES = 2
"""How many states are kept: should the latest one be damaged, the run is resumed from the one before it."""

Checksums = dict[str, dict[str, str]]
"""The SHA-256 checksums of files, by the name of their folder and their own."""

_STEP_NAME = re.compile(r"step-\d+")


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        step: the number of updates made so far.
        seconds: the wall-clock time of the updates, summed over all sessions.
        processor_seconds: the CPU time of the main process, summed over all sessions.
        loss: the sum of the training losses since the last record in the log.
        pruning_bound: the sum of the bounds on what pruning has changed the training losses by since that record.
        recorded: the step of the last record in the log.
        recorded_loss: the mean training loss in that record; None before the first one.
        best: the highest dev metric so far.
        waited: the number of evaluations since the highest dev metric, as early stopping counts them.
        halvings: how often the schedule ``plateau`` has halved the learning rate.
        kept: the step and the dev metric of each checkpoint that is kept, the best one first.
        finished: why the run has ended; None if it has not ended.
        records: the SHA-256 digest of the records in the log; None in runs of early versions, which did not save it.
    """

    step: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    loss: float = 0.0
    pruning_bound: float = 0.0
    recorded: int = 0
    recorded_loss: float | None = None
    best: float | None = None
    waited: int = 0
    halvings: int = 0
    kept: list[tuple[int, float]] = field(default_factory=list)
    finished: str | None = None
    records: str | None = None

    def judge(self, score: float, keep: int) -> None:
        """Record the dev metric of a checkpoint; if two checkpoints are equally good, the later one ranks higher."""
        better = self.best is None or score > self.best
        self.waited = 0 if better else self.waited + 1
        self.best = score if better else self.best
        self.kept = sorted([*self.kept, (self.step, score)], key=lambda pair: (-pair[1], -pair[0]))[:keep]


class TrainingState:
    """The model, the optimizer, the position in the data and, in fp16, the scale of the loss, saved together."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        sampler: BucketSampler,
        conditions: ResumeConditions,
        scaler: "torch.amp.GradScaler | None" = None,
    ) -> None:
        self.model, self.optimizer, self.sampler = model, optimizer, sampler
        self.conditions, self.scaler = conditions, scaler

    def save(self, folder: Path, progress: Progress, checkpoints: Checksums | None = None) -> None:
        """Write the state atomically, and remove all but the latest states.

        Args:
            folder: the folder of all states.
            progress: the progress of the run.
            checkpoints: the checksums of the files of the checkpoints that are kept (see `read_kept_checksums`).
        """
        name = f"step-{progress.step:07d}"
        if not (folder / name).exists():  # an existing state of this step is the same
            with atomic_folder(folder / name) as partial:
                write_tensors(partial / WEIGHTS, self.model.state_dict())
                write_tensors(partial / OPTIMIZER, _flatten(self.optimizer.state_dict()["state"]))
                record = {
                    "progress": asdict(progress),
                    "sampler": self.sampler.state_dict(),
                    "conditions": self.conditions.record(),
                    "checkpoints": checkpoints or {},
                }
                if self.scaler is not None:
                    record["scaler"] = self.scaler.state_dict()
                write_text(partial / STATE, json.dumps(record, indent=2) + "\n")
                record_checksums(partial, (STATE, WEIGHTS, OPTIMIZER))
        remove_states(folder, progress.step)

    def load(self, state: Path | None) -> Progress:
        """Load a state that is not damaged; without a state, the run starts from the beginning."""
        if state is None:
            return Progress()
        with _broken_state_error(state):
            record = read_json(state / STATE)
            before = record.get("conditions", self.conditions.record())  # early versions did not save them
            differences = ResumeConditions.parse(before).differences(self.conditions)
        if differences:
            raise DataError(
                f"the run cannot be resumed: {'. Also, '.join(differences)}. Or start a new run.", state
            )
        with _broken_state_error(state):
            self.model.load_state_dict(rename_parameters(read_tensors(state / WEIGHTS)))
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict(
                {"state": _unflatten(read_tensors(state / OPTIMIZER)), "param_groups": groups}
            )
            self.sampler.load_state_dict(record["sampler"])
            if self.scaler is not None:
                self.scaler.load_state_dict(record["scaler"])
        return read_progress(state)


@contextmanager
def _broken_state_error(state: Path) -> Iterator[None]:
    """Turn any error that a damaged file may lead to into a `DataError`."""
    try:
        yield
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        DataError,
    ) as error:
        raise damaged_state_error(state, f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def damaged_state_error(state: Path, reason: str) -> DataError:
    """The error for a state that is damaged and has no other before it."""
    return DataError(
        f"this saved state is damaged ({reason}). Restore a copy, or start the run again with --overwrite.",
        state,
    )


def step_folders(folder: Path) -> list[Path]:
    """The folders of all complete states (or checkpoints) in a folder, the latest first."""
    found = [path for path in folder.glob("step-*") if _STEP_NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=step_of, reverse=True)


def step_of(folder: Path) -> int:
    """The step of a state or checkpoint, by the name of its folder."""
    return int(folder.name.removeprefix("step-"))


def latest_state(folder: Path) -> Path | None:
    """The folder of the latest complete state; None if there is none."""
    return next(iter(step_folders(folder)), None)


def last_saved_step(run: Path) -> int | None:
    """The step from which a run, or its latest attempt, is resumed; None if it starts from the beginning."""
    attempts = sorted((run / "attempts").glob("*"), key=lambda attempt: attempt.stat().st_mtime)
    folders = [run, *reversed(attempts)]
    states = [state for folder in folders if (state := latest_state(folder / "state")) is not None]
    return step_of(states[0]) if states else None


def remove_states(folder: Path, step: int) -> None:
    """Remove all states but that of a step and the one before it; files that do not belong to a state stay."""
    states = step_folders(folder)
    kept = [state for state in states if step_of(state) <= step][:KEPT_STATES]
    for state in states:
        if state not in kept:
            remove_folder(state)
    for unfinished in folder.glob(f".*{PARTIAL}"):
        shutil.rmtree(unfinished)


def read_progress(state: Path) -> Progress:
    """The progress of a run when a state was saved."""
    with _broken_state_error(state):
        require_unchanged(state, [STATE])
        progress = read_json(state / STATE)["progress"]
        kept = [(int(step), float(score)) for step, score in progress.pop("kept")]
        return Progress(**progress, kept=kept)


def read_kept_checksums(state: Path) -> Checksums:
    """The checksums of the files of all kept checkpoints, by the names of their folders, when a state was saved."""
    with _broken_state_error(state):
        require_unchanged(state, [STATE])
        record = read_json(state / STATE)
        known = record.get("checkpoints", {})  # early versions did not save them
        return {str(name): dict(checksums) for name, checksums in known.items()}


def latest_progress(folder: Path) -> Progress | None:
    """The progress at the latest state that is not damaged; None if there is none."""
    for state in step_folders(folder):
        with suppress(DataError):
            return read_progress(state)
    return None


def seed_step(seed: int, step: int, process: int) -> None:
    """Seed all random generators for a step, so that its noise depends only on seed, step and process."""
    digest = hashlib.sha256(f"{seed}/{step}/{process}".encode()).digest()
    number = int.from_bytes(digest[:8], "little") >> 1
    torch.manual_seed(number)  # on every device
    random.seed(number)
    numpy.random.seed(number % 2**32)


def _flatten(state: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The optimizer's tensors under keys of parameter index and name."""
    return {
        f"{parameter}.{name}": tensor
        for parameter, tensors in state.items()
        for name, tensor in tensors.items()
    }


def _unflatten(flat: Mapping[str, Tensor]) -> dict[int, dict[str, Any]]:
    nested: dict[int, dict[str, Any]] = {}
    for key, tensor in flat.items():
        parameter, _, name = key.partition(".")
        nested.setdefault(int(parameter), {})[name] = tensor
    return nested
