"""Check that a run can be resumed exactly: its data, options and number of processes must not have changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from permalign.errors import ConfigError, UsageError, excerpt
from permalign.options.renames import translate_options
from permalign.options.run import RunOptions

PATHS = {"task.path", "task.source_file", "task.target_file", "task.data_dir"}
"""Options that may change, because data may be moved: its fingerprint is compared instead of its path."""


@dataclass(frozen=True)
class ResumeConditions:
    """The conditions that must be the same in all sessions of a run.

    Attributes:
        data: a fingerprint of the training split.
        processes: the number of processes, each of which has its own random noise and its share of the batches.
        total: the total number of steps, on which learning rates depend.
        options: all options of the run.
    """

    data: str
    processes: int
    total: int
    options: RunOptions

    def record(self) -> dict[str, Any]:
        """The conditions as a JSON object."""
        return {
            "data": self.data,
            "processes": self.processes,
            "total": self.total,
            "options": self.options.model_dump(mode="json"),
        }

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """Parse the JSON object that `record` returned; old names of options are translated, new options get defaults.

        Raises:
            ValueError: the record is malformed.
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
        """Messages about the conditions that have changed, the most important one first; each says what to do."""
        messages = []
        if self.data != now.data:
            messages.append("it was started with other training data; restore that data")
        if self.processes != now.processes:
            messages.append(
                f"it was started with {_count(self.processes, 'process', 'es')}, but now there are "
                f"{now.processes}; use the same number"
            )
        before, after = (_flatten(conditions.options.model_dump(mode="json")) for conditions in (self, now))
        messages += [
            f"{option} was {excerpt(before.get(option))} and is now {excerpt(after.get(option))}; restore it in "
            "config.yaml"
            for option in sorted((before.keys() | after.keys()) - PATHS - {"description"})
            if before.get(option) != after.get(option)
        ]
        if not messages and self.total != now.total:
            messages.append(f"it had {_count(self.total, 'step', 's')}, but now has {now.total}")
        return messages


def _count(number: int, noun: str, plural: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{plural}"


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options by their full names, such as ``model.head.kind``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            _flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
        )
    return flat
