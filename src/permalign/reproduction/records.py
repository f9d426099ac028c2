"""The results of runs, one line of ``runs.jsonl`` for each: its options, dev scores, evaluations and cost.

A run is named by its experiment, a digest of all options that differ from the defaults, and its seed. A changed config
is therefore another run with another line, and the lines of all configs that were ever tried stay: a choice made by
looking at test scores could not be hidden. Apart from the few examples that an evaluation explains, the file holds no
text of the data, only whether each example was answered correctly.
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
"""The file's name in the folder of results."""


@dataclass(frozen=True)
class RunKey:
    """Identifies a training run.

    Attributes:
        experiment: the experiment that is trained.
        settings: the options it changes, as ``option=value``.
        seed: the run's seed.
        options: all options that differ from the defaults, without the description and the seed.
    """

    experiment: str
    settings: tuple[str, ...]
    seed: int
    options: dict[str, Any] = field(hash=False, compare=False)

    @classmethod
    def of(cls, cell: Cell, seed: int, settings: Iterable[str] = ()) -> "RunKey":
        """The run of a cell; ``settings`` are applied after the cell's own."""
        all_settings = (*cell.settings, *settings)
        options = load_experiment(cell.experiment, [*all_settings, f"seed={seed}"])
        values = options.model_dump(mode="json", exclude_defaults=True, exclude={"description", "seed"})
        return cls(cell.experiment, all_settings, seed, values)

    @property
    def config(self) -> str:
        """Names the experiment and its options: all seeds of a config share it."""
        digest = hashlib.sha256(json.dumps(self.options, sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.experiment.replace('/', '-')}-{digest}"

    @property
    def name(self) -> str:
        """Names the run's folder and its record."""
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
        run: the run's name.
        command: the command that trains this run alone.
        experiment: the experiment that was trained.
        settings: the options it changed.
        seed: the run's seed.
        options: all options that differ from the defaults.
        environment: versions, machine and commit when training began.
        training: why training ended, its steps, seconds and CPU seconds; empty until it has ended.
        dev: split, metric, best score and its step, the best scores of restarts, and the scores of all evaluations.
        evaluations: metrics and judgements by the key of the evaluation.
        failure: the error that ended the run, if there was one.
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
        """The record of a run that has no results yet."""
        return cls(key.name, key.command, key.experiment, list(key.settings), key.seed, key.options)

    @property
    def config(self) -> str:
        """The run's name without its seed."""
        return self.run.removesuffix(f"-seed-{self.seed}")

    def to_json(self) -> str:
        """The record as a line of ``runs.jsonl``; fields stand in the order of this class."""
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
    """The file of all records, one line for each run, sorted by name.

    Several processes may write at once: each reads, changes and replaces the file under a lock, so no record is lost,
    no run has two lines, and a reader finds a complete file at any moment.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def read(self) -> dict[str, RunRecord]:
        """All records by the name of their run."""
        return {name: self._parse(name, line) for name, line in self._lines().items()}

    def find(self, name: str) -> RunRecord | None:
        """The record of a run, or None if it has none."""
        line = self._lines().get(name)
        return None if line is None else self._parse(name, line)

    def write(self, record: RunRecord) -> None:
        """Add a record, or replace the one of the same run; evaluations that only the old one has are kept."""
        with exclusive_lock(self.path.with_name(f".{self.path.name}.lock"), wait=True):
            lines = self._lines()
            if record.run in lines:
                record.evaluations = (
                    self._parse(record.run, lines[record.run]).evaluations | record.evaluations
                )
            lines[record.run] = record.to_json()
            write_lines(self.path, (lines[name] for name in sorted(lines)))

    def _lines(self) -> dict[str, str]:
        """The lines by run. A line begins with the run's name, so that it need not be parsed to be found."""
        if not self.path.is_file():
            return {}
        lines: dict[str, str] = {}
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1):
            beginning, name = line[:8], line[8:].partition('"')[0]
            if beginning != '{"run":"':
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
                f"the record of {name} cannot be read. Remove its line, and the run is made again.", self.path
            ) from None


def pack_bits(judgements: Sequence[bool]) -> str:
    """Encode judgements as hexadecimal digits, four to a digit, the last digit filled up with zeros.

    >>> pack_bits([True, False, True, True, True]), unpack_bits("b8", 5)
    ('b8', [True, False, True, True, True])
    """
    bits = "".join("1" if judgement else "0" for judgement in judgements)
    bits += "0" * (-len(bits) % 4)
    return "".join(f"{int(bits[start : start + 4], 2):x}" for start in range(0, len(bits), 4))


def unpack_bits(digits: str, count: int) -> list[bool]:
    """Decode what `pack_bits` has encoded."""
    bits = "".join(f"{int(digit, 16):04b}" for digit in digits)
    return [bit == "1" for bit in bits[:count]]
