"""Tasks whose splits are partitions of one pool of examples, and the ways to cut it.

A cut gives each part (``train``, ``dev``, ``test``) the places of its examples in the pool, in the order of
the pool. Cuts are drawn from a seed, or follow from a length, or were drawn once and are shipped as lists of
numbers, so that everybody has the same ones.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Literal

from permalign.errors import DataError
from permalign.tasks.base import Example, Task
from permalign.tasks.seeded_random import shuffled

PARTS = ("train", "dev", "test")

Partition = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class PartitionedExamples:
    """All examples of a task, for each condition (``iid``, ``len``) its cut, and what was left out."""

    examples: Sequence[Example]
    partitions: Mapping[str, Partition]
    notes: tuple[str, ...] = ()

    def part(self, split: str) -> list[Example]:
        """The examples of the split ``condition/part``."""
        condition, _, part = split.partition("/")
        return [self.examples[place] for place in self.partitions[condition][part]]


class PartitionedTask(Task):
    """A task that is read once, when its examples are first asked for, and then cut."""

    conditions: tuple[str, ...]

    @abstractmethod
    def _load(self) -> PartitionedExamples:
        """Read the examples and cut them; called once."""

    @cached_property
    def data(self) -> PartitionedExamples:
        """All examples and their partitions."""
        return self._load()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out on reading."""
        return self.data.notes

    @property
    def splits(self) -> tuple[str, ...]:
        """Every part of every condition."""
        return tuple(f"{condition}/{part}" for condition in self.conditions for part in PARTS)

    def examples(self, split: str) -> Sequence[Example]:
        """The examples of one split, in the order of the pool."""
        if split not in self.splits:
            raise self.unknown_split(split)
        return self.data.part(split)


def random_partition(size: int, dev: int, test: int, seed: int) -> dict[str, list[int]]:
    """Draw ``dev`` and ``test`` of ``size`` places without replacement; the rest is ``train``.

    >>> random_partition(6, 1, 2, seed=0)
    {'train': [0, 3, 5], 'dev': [4], 'test': [1, 2]}
    """
    if dev < 0 or test < 0 or dev + test >= size:
        raise ValueError(f"{dev} dev and {test} test examples leave nothing to train on: there are {size}.")
    order = shuffled(range(size), Random(seed))
    return _cut(size, dev=order[:dev], test=order[dev : dev + test])


def partition_by_length(lengths: Sequence[int], longest_in_train: int, seed: int) -> dict[str, list[int]]:
    """Train on what is short; halve what is longer into ``dev`` and ``test``.

    >>> partition_by_length([3, 9, 4, 8], longest_in_train=4, seed=0)
    {'train': [0, 2], 'dev': [1], 'test': [3]}
    """
    long = [place for place, length in enumerate(lengths) if length > longest_in_train]
    order = shuffled(long, Random(seed))
    half = len(order) // 2
    return _cut(len(lengths), dev=order[:half], test=order[half:])


def partition_examples(
    examples: Sequence[Example],
    path: Path,
    *,
    dev_size: int | None,
    test_size: int | None,
    longest_in_train: int | None,
    measured_side: Literal["source", "target"] = "source",
    seed: int,
) -> dict[str, Partition]:
    """Partition a pool that comes without splits; ``path`` is where it was read, for the error message."""
    tenth = max(1, len(examples) // 10)
    dev = tenth if dev_size is None else dev_size
    test = tenth if test_size is None else test_size
    if dev + test >= len(examples):
        raise DataError(
            f"{dev} dev and {test} test examples leave nothing to train on: the file has {len(examples)} "
            "usable examples. Ask for fewer with --dev-size and --test-size.",
            path,
        )
    partitions: dict[str, Partition] = {"iid": random_partition(len(examples), dev, test, seed)}
    if longest_in_train is not None:
        lengths = [len(pair.source if measured_side == "source" else pair.target) for pair in examples]
        partitions["len"] = partition_by_length(lengths, longest_in_train, seed)
    return partitions


def shipped_partition(name: str, condition: str, size: int) -> dict[str, list[int]]:
    """The cut that is shipped for a task; whatever it does not name is ``train``."""
    text = files("permalign.tasks").joinpath("splits", f"{name}.json").read_text(encoding="utf-8")
    parts = json.loads(text)[condition]
    return _cut(size, dev=parts["dev"], test=parts["test"])


def _cut(size: int, dev: Sequence[int], test: Sequence[int]) -> dict[str, list[int]]:
    held_out = {*dev, *test}
    train = [place for place in range(size) if place not in held_out]
    return {"train": train, "dev": sorted(dev), "test": sorted(test)}
