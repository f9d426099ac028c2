"""The saved training state, from which a run is resumed exactly.

It consists of JSON and safetensors files, so that loading it never executes code. It contains no state of random
generators, because they are seeded anew in every step (`seed_step`), and no learning rate, because that is a function
of the step.
"""

import hashlib
import json
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from permalign.errors import DataError
from permalign.files import atomic_folder
from permalign.options.renames import rename_parameters
from permalign.text.batch_sampler import BucketSampler
from permalign.training.resume_check import ResumeConditions

STATE, WEIGHTS, OPTIMIZER = "state.json", "model.safetensors", "optimiser.safetensors"


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        step: the number of updates made so far.
        seconds: the wall-clock time of the updates, summed over all sessions.
        processor_seconds: the CPU time of the main process, summed over all sessions.
        loss: the sum of the training losses since the last record in the log.
        recorded: the step of the last record in the log.
        best: the highest dev metric so far.
        waited: the number of evaluations since the highest dev metric, as early stopping counts them.
        halvings: how often the schedule ``plateau`` has halved the learning rate.
        kept: the step and the dev metric of each checkpoint that is kept, the best one first.
        finished: why the run has ended; None if it has not ended.
    """

    step: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    loss: float = 0.0
    recorded: int = 0
    best: float | None = None
    waited: int = 0
    halvings: int = 0
    kept: list[tuple[int, float]] = field(default_factory=list)
    finished: str | None = None

    def judge(self, score: float, keep: int) -> None:
        """Record the dev metric of a checkpoint; if two checkpoints are equally good, the later one ranks higher."""
        better = self.best is None or score > self.best
        self.waited = 0 if better else self.waited + 1
        self.best = score if better else self.best
        self.kept = sorted([*self.kept, (self.step, score)], key=lambda pair: (-pair[1], -pair[0]))[:keep]


class TrainingState:
    """The model, the optimizer and the position in the data, saved and loaded together."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        sampler: BucketSampler,
        conditions: ResumeConditions,
    ) -> None:
        self.model, self.optimizer, self.sampler = model, optimizer, sampler
        self.conditions = conditions

    def save(self, folder: Path, progress: Progress) -> None:
        """Write the state atomically, and remove older states."""
        name = f"step-{progress.step:07d}"
        if not (folder / name).exists():  # an existing state of this step is the same
            with atomic_folder(folder / name) as partial:
                save_file(_copied(self.model.state_dict()), partial / WEIGHTS)
                save_file(_copied(_flatten(self.optimizer.state_dict()["state"])), partial / OPTIMIZER)
                record = {
                    "progress": asdict(progress),
                    "sampler": self.sampler.state_dict(),
                    "conditions": self.conditions.record(),
                }
                (partial / STATE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        remove_older_states(folder)

    def load(self, folder: Path) -> Progress:
        """Load the latest complete state; if there is none, the run starts from the beginning."""
        state = latest_state(folder)
        if state is None:
            return Progress()
        with _broken_state_error(state):
            record = json.loads((state / STATE).read_text(encoding="utf-8"))
            before = record.get("conditions", self.conditions.record())  # early versions did not save them
            differences = ResumeConditions.parse(before).differences(self.conditions)
        if differences:
            raise DataError(
                f"the run cannot be resumed: {'. Also, '.join(differences)}. Or start a new run.", state
            )
        with _broken_state_error(state):
            self.model.load_state_dict(rename_parameters(load_file(state / WEIGHTS)))
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict(
                {"state": _unflatten(load_file(state / OPTIMIZER)), "param_groups": groups}
            )
            self.sampler.load_state_dict(record["sampler"])
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
        SafetensorError,
    ) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"this saved state is damaged ({type(error).__name__}: {reason}). Restore a copy, or start the run again "
            "with --overwrite.",
            state,
        ) from error


def latest_state(folder: Path) -> Path | None:
    """The folder of the latest complete state; None if there is none."""
    return max(folder.glob("step-*"), default=None)


def last_saved_step(run: Path) -> int | None:
    """The step from which a run, or its latest attempt, is resumed; None if it starts from the beginning."""
    attempts = sorted((run / "attempts").glob("seed-*"), key=lambda attempt: attempt.stat().st_mtime)
    folders = [run, *reversed(attempts)]
    states = [state for folder in folders if (state := latest_state(folder / "state")) is not None]
    return int(states[0].name.removeprefix("step-")) if states else None


def remove_older_states(folder: Path) -> None:
    """Remove all states except for the latest complete one."""
    latest = latest_state(folder)
    for path in folder.iterdir():
        if path != latest:
            shutil.rmtree(path)


def read_progress(state: Path) -> Progress:
    """The progress of a run when a state was saved."""
    with _broken_state_error(state):
        progress = json.loads((state / STATE).read_text(encoding="utf-8"))["progress"]
        kept = [(int(step), float(score)) for step, score in progress.pop("kept")]
        return Progress(**progress, kept=kept)


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


def _copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that share no memory, as safetensors requires."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
