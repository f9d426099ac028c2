"""The results of runs, stored as lines of ``runs.jsonl``: options, dev scores, evaluations and cost of each run.

The name of a run consists of its experiment, a digest of all options that differ from the defaults, and its seed. A run
with changed options therefore has a line of its own, and the lines of all options that were ever tried are kept, so
that nobody can hide that options were chosen by their test scores. The file contains no text of the data, except for
the few examples that some evaluations explain; it only says which examples were answered correctly.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from permalign.errors import DataError
from permalign.files import exclusive_lock, write_lines
from permalign.reproduction.cells import Cell
from permalign.training.experiments import load_experiment

RUNS = "runs.jsonl"
"""The name of the file in the folder of results."""


@dataclass(frozen=True)
class RunKey:
    """Identifies a training run.

    Attributes:
        experiment: the name of the experiment that is trained.
        settings: changes to the options of the experiment, as ``option=value``.
        seed: the seed of the run.
        options: all options that differ from the defaults, except for the description and the seed.
    """

    experiment: str
    settings: tuple[str, ...]
    seed: int
    options: dict[str, Any] = field(hash=False, compare=False)

    @classmethod
    def of(cls, cell: Cell, seed: int, settings: Iterable[str] = ()) -> "RunKey":
        """The run of a cell with a given seed; ``settings`` are applied after the settings of the cell."""
        all_settings = (*cell.settings, *settings)
        options = load_experiment(cell.experiment, [*all_settings, f"seed={seed}"])
        values = options.model_dump(mode="json", exclude_defaults=True, exclude={"description", "seed"})
        return cls(cell.experiment, all_settings, seed, values)

    @property
    def config(self) -> str:
        """The name of the experiment and its options, which is the same for all seeds."""
        digest = hashlib.sha256(json.dumps(self.options, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.experiment.replace('/', '-')}-{digest}"

    @property
    def name(self) -> str:
        """The name of the run, which is also the name of its folder."""
        return f"{self.config}-seed-{self.seed}"

    @property
    def command(self) -> str:
        """The command that trains this run alone."""
        changes = [word for setting in self.settings for word in ("--set", setting)]
        return shlex.join(["permalign", "train", self.experiment, *changes, "--seed", str(self.seed)])


@dataclass
class RunRecord:
    """The results of a run.

    Attributes:
        run: the name of the run.
        command: the command that trains this run alone.
        experiment: the name of the experiment that was trained.
        settings: changes to the options of the experiment.
        seed: the seed of the run.
        options: all options that differ from the defaults.
        environment: the versions, the machine and the commit when training started.
        training: why training ended, and the number of steps, seconds and CPU seconds; empty until it has ended.
        dev: the dev split, the metric, the best score and its step, the best scores of restarts, and all scores.
        evaluations: the metrics and judgements of each evaluation, by its key.
        failure: the message of the error that ended the run; None if there was none.
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
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    failure: str | None = None

    @classmethod
    def begin(cls, key: RunKey) -> "RunRecord":
        """Create the record of a run that has no results yet."""
        return cls(key.name, key.command, key.experiment, list(key.settings), key.seed, key.options)

    @property
    def config(self) -> str:
        """The name of the run without its seed."""
        return self.run.removesuffix(f"-seed-{self.seed}")

    def to_json(self) -> str:
        """Write the record as a line of ``runs.jsonl``, with its fields in the order of this class."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> "RunRecord":
        """Read a line of ``runs.jsonl``.

        Raises:
            ValueError, TypeError, KeyError: the line is not a record.
        """
        values = json.loads(line)
        return cls(**{attribute.name: values[attribute.name] for attribute in fields(cls)})


class RunStore:
    """The file of all records, with one line per run, sorted by name.

    Several processes may write at the same time: each of them reads, changes and replaces the file while it holds a
    lock. So no record is lost, no run has two lines, and a reader always finds a complete file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> dict[str, RunRecord]:
        """Read all records; returns them by the names of their runs."""
        return {name: self._parse(name, line) for name, line in self._lines().items()}

    def find(self, name: str) -> RunRecord | None:
        """The record of a run; None if there is none."""
        line = self._lines().get(name)
        return None if line is None else self._parse(name, line)

    def write(self, record: RunRecord) -> None:
        """Add a record, or replace that of the same run.

        Evaluations that only the old record has are kept, unless they are of another model: one that was trained with
        another version of the code, and had other scores on dev.
        """
        with exclusive_lock(self.path.with_name(f".{self.path.name}.lock"), wait=True):
            lines = self._lines()
            if record.run in lines:
                old = self._parse(record.run, lines[record.run])
                if not old.dev or old.dev.get("scores") == record.dev.get("scores"):
                    record.evaluations = old.evaluations | record.evaluations
            lines[record.run] = record.to_json()
            write_lines(self.path, (lines[name] for name in sorted(lines)))

    def _lines(self) -> dict[str, str]:
        """All lines by the names of their runs. A line begins with this name, so it need not be parsed to find it."""
        if not self.path.is_file():
            return {}
        lines: dict[str, str] = {}
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1):
            prefix, name = line[:8], line[8:].partition('"')[0]
            if prefix != '{"run":"':
                raise DataError(f"line {number} is not a record of a run. Remove the line.", self.path)
            if name in lines:
                raise DataError(f"line {number} is a second record of {name}. Remove one.", self.path)
            lines[name] = line
        return lines

    def _parse(self, name: str, line: str) -> RunRecord:
        try:
            return RunRecord.from_json(line)
        except (ValueError, TypeError, KeyError):
            raise DataError(
                f"the record of {name} cannot be read. Remove its line; the run is then repeated.", self.path
            ) from None


def pack_bits(judgements: Sequence[bool]) -> str:
    """Encode judgements as hexadecimal digits of four bits each; the last digit is padded with zeros.

    >>> pack_bits([True, False, True, True, True]), unpack_bits("b8", 5)
    ('b8', [True, False, True, True, True])
    """
    bits = "".join("1" if judgement else "0" for judgement in judgements)
    bits += "0" * (-len(bits) % 4)
    return "".join(f"{int(bits[start : start + 4], 2):x}" for start in range(0, len(bits), 4))


def unpack_bits(digits: str, count: int) -> list[bool]:
    """Decode ``count`` judgements that `pack_bits` has encoded."""
    bits = "".join(f"{int(digit, 16):04b}" for digit in digits)
    return [bit == "1" for bit in bits[:count]]
