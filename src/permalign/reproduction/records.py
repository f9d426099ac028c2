"""What runs gave, one small JSON file for each: the config, the scores on dev, the trials on test, the cost.

A run is named by its experiment, a digest of all options that differ from the defaults, and its seed. So a changed
config is another run with another file, and the files of all that were ever tried stay: nothing chosen by looking at
test scores could hide. But for the few examples that a trial shows, no text of the data is in them, only whether each
example was answered right.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from permalign.errors import DataError
from permalign.files import atomic_file
from permalign.reproduction.cells import Cell
from permalign.training.experiments import load_experiment


@dataclass(frozen=True)
class RunKey:
    """A training run before it is made.

    Attributes:
        experiment: what is trained.
        settings: how it differs.
        seed: of the run.
        options: all that differs from the defaults; without description and seed.
    """

    experiment: str
    settings: tuple[str, ...]
    seed: int
    options: dict[str, Any] = field(hash=False, compare=False)

    @classmethod
    def of(cls, cell: Cell, seed: int, more: Iterable[str] = ()) -> "RunKey":
        """The run of a cell, with more settings after the cell's own."""
        settings = (*cell.settings, *more)
        options = load_experiment(cell.experiment, [*settings, f"seed={seed}"])
        values = options.model_dump(mode="json", exclude_defaults=True, exclude={"description", "seed"})
        return cls(cell.experiment, settings, seed, values)

    @property
    def name(self) -> str:
        """Names the run's folder and its record."""
        digest = hashlib.sha256(json.dumps(self.options, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.experiment.replace('/', '-')}-{digest}-seed-{self.seed}"

    @property
    def command(self) -> str:
        """What to type to train it alone."""
        changes = [word for setting in self.settings for word in ("--set", setting)]
        return shlex.join(["permalign", "train", self.experiment, *changes, "--seed", str(self.seed)])


@dataclass
class RunRecord:
    """What a run gave.

    Attributes:
        run: its name.
        command: to train it alone.
        experiment: what was trained.
        settings: how it differed.
        seed: of the run.
        options: all that differed from the defaults.
        environment: versions, machine and commit at the beginning of training.
        training: why it ended, its steps, seconds and processor seconds; empty until it has ended.
        dev: split, metric, best score and step, the best scores of restarts, and the scores of all evaluations.
        tests: metrics and more by the key of the trial.
        failure: why it could not be finished, if so.
    """

    run: str
    command: str
    experiment: str
    settings: list[str]
    seed: int
    options: dict[str, Any]
    environment: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    dev: dict[str, Any] = field(default_factory=dict)
    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    failure: str | None = None

    @classmethod
    def begin(cls, key: RunKey) -> "RunRecord":
        """The record of a run that has given nothing yet."""
        return cls(key.name, key.command, key.experiment, list(key.settings), key.seed, key.options)


class Records:
    """A folder of records."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def path(self, name: str) -> Path:
        """The file of a run."""
        return self.folder / f"{name}.json"

    def read(self, name: str) -> RunRecord | None:
        """What a run gave, if it gave anything."""
        path = self.path(name)
        if not path.is_file():
            return None
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return RunRecord(**{one.name: values[one.name] for one in fields(RunRecord)})
        except (ValueError, TypeError, KeyError):
            raise DataError("is no record of a run. Move it away, and the run is made again.", path) from None

    def write(self, record: RunRecord) -> None:
        """Keep a record, in the place of an older one."""
        with atomic_file(self.path(record.run)) as file:
            text = json.dumps(asdict(record), indent=1, ensure_ascii=False)
            file.write_text(text + "\n", encoding="utf-8")


def packed(judgements: Sequence[bool]) -> str:
    """Yes and no as hexadecimal digits, four to a digit, the last ones filled up with no.

    >>> packed([True, False, True, True, True]), unpacked("b8", 5)
    ('b8', [True, False, True, True, True])
    """
    bits = "".join("1" if one else "0" for one in judgements)
    bits += "0" * (-len(bits) % 4)
    return "".join(f"{int(bits[place : place + 4], 2):x}" for place in range(0, len(bits), 4))


def unpacked(digits: str, count: int) -> list[bool]:
    """The inverse of `packed`."""
    bits = "".join(f"{int(digit, 16):04b}" for digit in digits)
    return [bit == "1" for bit in bits[:count]]
