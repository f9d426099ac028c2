"""Tasks that partition one set of examples into train, dev and test, and functions that make such partitions.

A partition maps each part (``train``, ``dev``, ``test``) to the indices of its examples. It is drawn at random with a
seed, or divides the examples by length, or ships with the package as a list of indices, so that everybody has the same.
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

MIN_TO_HOLD_OUT = 3
"""The number of examples below which none are held out: one each for train, dev and test."""

Partition = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class PartitionedExamples:
    """All examples of a task, their partition under each condition, and notes on what was left out.

    Attributes:
        examples: all examples.
        partitions: the indices of the examples of each part, by condition.
        notes: what a user should know about the examples and their partitions.
        reading_notes: those of the notes that say how the examples were read, whatever their partitions.
    """

    examples: Sequence[Example]
    partitions: Mapping[str, Partition]
    notes: tuple[str, ...] = ()
    reading_notes: tuple[str, ...] = ()

    def part(self, split: str) -> list[Example]:
        """The examples of the split ``condition/part``."""
        condition, _, part = split.partition("/")
        return [self.examples[index] for index in self.partitions[condition][part]]


class PartitionedTask(Task):
    """A task whose examples are read and partitioned when they are first used."""

    conditions: tuple[str, ...]

    @abstractmethod
    def _load(self) -> PartitionedExamples:
        """Read and partition the examples; this is called only once."""

    @cached_property
    def data(self) -> PartitionedExamples:
        """All examples and their partitions."""
        return self._load()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what was left out when the data was read."""
        return self.data.notes

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of all splits: every part of every condition."""
        return tuple(f"{condition}/{part}" for condition in self.conditions for part in PARTS)

    def examples(self, split: str) -> Sequence[Example]:
        """The examples of one split."""
        if split not in self.splits:
            raise self.unknown_split(split)
        return self.data.part(split)


def random_partition(size: int, dev: int, test: int, seed: int) -> dict[str, list[int]]:
    """Draw ``dev`` and ``test`` indices out of ``size`` at random; the rest is ``train``.

    >>> random_partition(6, 1, 2, seed=0)
    {'train': [0, 3, 5], 'dev': [4], 'test': [1, 2]}
    """
    if dev < 0 or test < 0 or dev + test >= size:
        raise ValueError(f"{dev} dev and {test} test examples leave nothing to train on: there are {size}.")
    order = shuffled(range(size), Random(seed))
    return _partition(size, dev=order[:dev], test=order[dev : dev + test])


def partition_by_length(lengths: Sequence[int], max_train_length: int, seed: int) -> dict[str, list[int]]:
    """Use short examples for ``train``, and divide longer ones at random into ``dev`` and ``test``.

    >>> partition_by_length([3, 9, 4, 8], max_train_length=4, seed=0)
    {'train': [0, 2], 'dev': [1], 'test': [3]}
    """
    long = [index for index, length in enumerate(lengths) if length > max_train_length]
    order = shuffled(long, Random(seed))
    half = len(order) // 2
    return _partition(len(lengths), dev=order[:half], test=order[half:])


def partition_examples(
    examples: Sequence[Example],
    path: Path,
    *,
    dev_size: int | None,
    test_size: int | None,
    max_train_length: int | None,
    measured_side: Literal["source", "target"] = "source",
    seed: int,
) -> dict[str, Partition]:
    """Partition examples that come without splits, at random (``iid``) and, if asked for, by length (``len``).

    Args:
        examples: all examples.
        path: the file that they were read from, for error messages.
        dev_size: the number of ``iid/dev`` examples; None for a tenth of all.
        test_size: the number of ``iid/test`` examples; None for a tenth of all.
        max_train_length: the length up to which examples are for training under ``len``; None for no such condition.
        measured_side: the side whose length is measured.
        seed: the seed of the random choices.
    """
    if not examples:
        raise DataError("there are no usable examples.", path)
    if len(examples) < MIN_TO_HOLD_OUT and dev_size is test_size is max_train_length is None:
        return {"iid": dict.fromkeys(PARTS, range(len(examples)))}
    tenth = max(1, len(examples) // 10)
    dev = tenth if dev_size is None else dev_size
    test = tenth if test_size is None else test_size
    if dev + test >= len(examples):
        raise DataError(
            f"{dev} dev and {test} test examples leave nothing to train on: the file has {len(examples)} "
            "usable examples. Ask for fewer with --dev-size and --test-size (dev_size and test_size in a config).",
            path,
        )
    partitions: dict[str, Partition] = {"iid": random_partition(len(examples), dev, test, seed)}
    if max_train_length is not None:
        lengths = [len(pair.source if measured_side == "source" else pair.target) for pair in examples]
        partitions["len"] = partition_by_length(lengths, max_train_length, seed)
    return partitions


def describe_random_parts(partition: Partition) -> str:
    """A note on how many examples were held out of a file that comes without splits."""
    if partition["train"] == partition["dev"]:
        return "there are too few examples to hold any out: training, dev and test have the same ones."
    return (
        f"no splits are given, so examples were held out at random: {len(partition['train']):,} for training, "
        f"{len(partition['dev']):,} for iid/dev, {len(partition['test']):,} for iid/test."
    )


def hold_out_dev(parts: Partition, condition: str, seed: int) -> tuple[dict[str, Sequence[int]], str]:
    """Hold out a tenth of the training examples for dev; returns the parts, and a note on it.

    >>> hold_out_dev({"train": [3, 4, 5], "test": [6]}, "iid", seed=0)[0]
    {'train': [4, 5], 'dev': [3], 'test': [6]}
    """
    train = parts["train"]
    if len(train) < MIN_TO_HOLD_OUT:
        note = f"{condition} has no dev examples, and too few to hold any out: dev has the training examples."
        return {**parts, "train": train, "dev": train}, note
    chosen = random_partition(len(train), max(1, len(train) // 10), 0, seed)
    held_out = {part: [train[index] for index in chosen[part]] for part in ("train", "dev")}
    note = (
        f"{condition} has no dev examples, so a tenth of the training examples was held out at random: "
        f"{len(held_out['train']):,} for training, {len(held_out['dev']):,} for dev."
    )
    return {**held_out, **{part: parts[part] for part in parts if part == "test"}}, note


def shipped_partition(name: str, condition: str, size: int) -> dict[str, list[int]]:
    """The partition that ships with the package for a task; examples that it does not list are ``train``."""
    text = files("permalign.tasks").joinpath("splits", f"{name}.json").read_text(encoding="utf-8")
    parts = json.loads(text)[condition]
    return _partition(size, dev=parts["dev"], test=parts["test"])


def _partition(size: int, dev: Sequence[int], test: Sequence[int]) -> dict[str, list[int]]:
    held_out = {*dev, *test}
    train = [index for index in range(size) if index not in held_out]
    return {"train": train, "dev": sorted(dev), "test": sorted(test)}
