"""What must not change between two sittings of a run, for the second to go on as if there were only one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from permalign.errors import ConfigError, UsageError
from permalign.options.renames import translate_options
from permalign.options.run import RunOptions

PLACES = {"task.path", "task.source_file", "task.target_file", "task.data_dir"}
"""Data may be moved: whether it is the same is seen by its fingerprint."""


@dataclass(frozen=True)
class ResumeConditions:
    """Under which a run goes on.

    Attributes:
        data: a fingerprint of the training split.
        processes: how many share the work; each has its own noise and its share of the batches.
        total: how many steps the run has; learning rates follow from it.
        options: all options of the run.
    """

    data: str
    processes: int
    total: int
    options: RunOptions

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "data": self.data,
            "processes": self.processes,
            "total": self.total,
            "options": self.options.model_dump(mode="json"),
        }

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """Read what `record` wrote; options under old names are translated, and new options have their defaults.

        Raises:
            ValueError: it wrote no such thing.
        """
        try:
            return cls(
                record["data"],
                int(record["processes"]),
                int(record["total"]),
                RunOptions.parse(translate_options(record["options"])[0]),
            )
        except (KeyError, TypeError, AttributeError, ConfigError, UsageError) as error:
            raise ValueError(f"conditions of the run: {error}") from None

    def differences(self, now: "ResumeConditions") -> list[str]:
        """In plain words, the weightiest first."""
        found = []
        if self.data != now.data:
            found.append("it was begun with other training data; put the old data back")
        if self.processes != now.processes:
            found.append(
                f"it was begun with {_count(self.processes, 'process', 'es')}, and this is "
                f"{_count(now.processes, 'process', 'es')}; start as many as before"
            )
        before, after = (_flat(one.options.model_dump(mode="json")) for one in (self, now))
        found += [
            f"{option} was {before.get(option)!r} and is {after.get(option)!r}; put it back in config.yaml"
            for option in sorted((before.keys() | after.keys()) - PLACES - {"description"})
            if before.get(option) != after.get(option)
        ]
        if not found and self.total != now.total:
            found.append(f"it had {_count(self.total, 'step', 's')}, and now has {now.total}")
        return found


def _count(number: int, noun: str, plural: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{plural}"


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested options by their whole names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return flat
