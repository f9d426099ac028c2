"""What a run has to remember to go on as if it had never stopped: JSON and safetensors, nothing that runs code.

Noise is not part of it: every step draws its own from seed, step and process (`seed_step`), so that there is no
generator whose state could be lost. Nor is the learning rate, which is a function of the step.
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
from permalign.text.sampler import BucketSampler
from permalign.training.resume_check import ResumeConditions

STATE, WEIGHTS, OPTIMISER = "state.json", "model.safetensors", "optimiser.safetensors"


@dataclass
class Progress:
    """Where a run stands.

    Attributes:
        step: how many updates were made.
        seconds: how long they took, over all sittings.
        processor_seconds: how long processors of the main process were busy with them.
        loss: sum of the losses since the last record of them.
        recorded: the step of that record.
        best: the highest dev metric so far.
        waited: evaluations since then.
        halvings: of the learning rate, by the schedule ``plateau``.
        kept: step and dev metric of the models kept, the best first.
        finished: why the run is over; None while it is not.
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
        """Take note of a dev metric; of equals, the later model is kept before the earlier."""
        better = self.best is None or score > self.best
        self.waited = 0 if better else self.waited + 1
        self.best = score if better else self.best
        self.kept = sorted([*self.kept, (self.step, score)], key=lambda one: (-one[1], -one[0]))[:keep]


class TrainingState:
    """The tensors and the position of a run: model, optimiser and sampler, saved and loaded together."""

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        sampler: BucketSampler,
        conditions: ResumeConditions,
    ) -> None:
        self.model, self.optimiser, self.sampler = model, optimiser, sampler
        self.conditions = conditions

    def save(self, folder: Path, progress: Progress) -> None:
        """Write everything in one act, and forget what was written before."""
        name = f"step-{progress.step:07d}"
        if not (folder / name).exists():  # what is there is the same
            with atomic_folder(folder / name) as place:
                save_file(_own_memory(self.model.state_dict()), place / WEIGHTS)
                save_file(_own_memory(_flat(self.optimiser.state_dict()["state"])), place / OPTIMISER)
                record = {
                    "progress": asdict(progress),
                    "sampler": self.sampler.state_dict(),
                    "conditions": self.conditions.record(),
                }
                (place / STATE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        remove_older_states(folder)

    def load(self, folder: Path) -> Progress:
        """Take up the last state that was written whole; without any, a run is at its beginning."""
        place = latest_state(folder)
        if place is None:
            return Progress()
        with _told_if_broken(place):
            record = json.loads((place / STATE).read_text(encoding="utf-8"))
            before = record.get("conditions", self.conditions.record())  # the first states did not have them
            different = ResumeConditions.parse(before).differences(self.conditions)
        if different:
            raise DataError(f"the run cannot go on: {'. Also, '.join(different)}. Or begin a new run.", place)
        with _told_if_broken(place):
            self.model.load_state_dict(load_file(place / WEIGHTS))
            groups = self.optimiser.state_dict()["param_groups"]
            self.optimiser.load_state_dict(
                {"state": _nested(load_file(place / OPTIMISER)), "param_groups": groups}
            )
            self.sampler.load_state_dict(record["sampler"])
        return read_progress(place)


@contextmanager
def _told_if_broken(place: Path) -> Iterator[None]:
    """Whatever a file that is not what was written leads to, as one error."""
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
        told = " ".join(str(error).split())
        raise DataError(
            f"this saved state is broken ({type(error).__name__}: {told}). Put back a copy, or begin the run anew with "
            "--overwrite.",
            place,
        ) from error


def latest_state(folder: Path) -> Path | None:
    """The newest of the states that are whole."""
    return max(folder.glob("step-*"), default=None)


def last_saved_step(run: Path) -> int | None:
    """The step that a run, or the latest of its attempts, goes on from; None if it begins anew."""
    folders = [run, *sorted((run / "attempts").glob("seed-*"), key=lambda one: one.stat().st_mtime)[::-1]]
    states = [place for folder in folders if (place := latest_state(folder / "state")) is not None]
    return int(states[0].name.removeprefix("step-")) if states else None


def remove_older_states(folder: Path) -> None:
    """Remove all states but the newest, and what was left of writing one."""
    newest = latest_state(folder)
    for place in folder.iterdir():
        if place != newest:
            shutil.rmtree(place)


def read_progress(place: Path) -> Progress:
    """Where a run stood when a state was written."""
    with _told_if_broken(place):
        progress = json.loads((place / STATE).read_text(encoding="utf-8"))["progress"]
        kept = [(int(step), float(score)) for step, score in progress.pop("kept")]
        return Progress(**progress, kept=kept)


def seed_step(seed: int, step: int, process: int) -> None:
    """Let all noise of a step, on this process, follow from the three numbers alone."""
    digest = hashlib.sha256(f"{seed}/{step}/{process}".encode()).digest()
    number = int.from_bytes(digest[:8], "little") >> 1
    torch.manual_seed(number)  # of every device
    random.seed(number)
    numpy.random.seed(number % 2**32)


def _flat(state: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The optimiser's tensors, named by the number of their parameter."""
    return {f"{number}.{name}": tensor for number, one in state.items() for name, tensor in one.items()}


def _nested(flat: Mapping[str, Tensor]) -> dict[int, dict[str, Any]]:
    nested: dict[int, dict[str, Any]] = {}
    for key, tensor in flat.items():
        number, _, name = key.partition(".")
        nested.setdefault(int(number), {})[name] = tensor
    return nested


def _own_memory(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share no memory, as safetensors wants them."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
