"""A task that reads its examples from the user's own files.

A file contains one example per line: tab-separated values, comma-separated values with a header, or JSON lines. An
example has a source and a target (tokens separated by spaces, or in JSON also a list of tokens) and optionally an
``id``. A column ``iid``, ``temp``, ``len`` or ``split`` (which means ``iid``) assigns each example to ``train``,
``dev`` or ``test``; if there is no such column, dev and test are drawn at random. All other columns are
stored in ``meta``.

Instead of a single file, a folder may contain one file per split, such as ``iid/train.jsonl`` or just ``train.tsv``
(`permalign data make` writes such folders), or two aligned ones, such as ``train.en`` and ``train.de``. A dataset of
Hugging Face is read by its name, ``hf:NAME``, or from the folder that ``save_to_disk`` wrote.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from permalign.errors import DataError
from permalign.tasks.aligned_files import read_aligned
from permalign.tasks.base import Example
from permalign.tasks.columns import SPLIT_COLUMNS, Columns, choose_columns, no_such_column
from permalign.tasks.hub_datasets import is_hub_dataset, read_hub_dataset
from permalign.tasks.partitions import (
    PARTS,
    PartitionedExamples,
    PartitionedTask,
    describe_random_parts,
    hold_out_dev,
    partition_examples,
)
from permalign.tasks.record_files import Record, columns_of, read_records, value_of
from permalign.tasks.split_files import PART_NAMES, find_split_files


@dataclass(frozen=True, slots=True)
class _RawPart:
    """The records of a file, and the split that they are for; None if the file does not say."""

    path: Path
    records: list[tuple[int, Record]]
    split: tuple[str, str] | None


class UserData(PartitionedTask):
    """Examples from the user's own file or folder, or from a dataset of Hugging Face.

    Args:
        path: a ``.tsv``, ``.csv`` or ``.jsonl`` file (each also ``.gz``), a folder of them, or ``hf:NAME``.
        source_column: the name of the column with the sources; several, separated by commas, are joined by spaces. By
            default ``source``, or another usual name, or the first of two columns. Of a file without a header, the
            number of the column.
        target_column: the name of the column with the targets, likewise.
        dev_size: the number of ``iid/dev`` examples if there is no split column; by default a tenth of all.
        test_size: the number of ``iid/test`` examples if there is no split column; by default a tenth of all.
        max_train_length: if given, and there is no split column, adds the condition ``len``, in which examples with
            longer sources are divided into dev and test.
        seed: the seed of the random splits.
    """

    name = "own"
    description = "your own TSV, CSV or JSON lines, a folder, or hf:NAME (--path)"

    def __init__(
        self,
        path: str | Path,
        *,
        source_column: str | int | None = None,
        target_column: str | int | None = None,
        dev_size: int | None = None,
        test_size: int | None = None,
        max_train_length: int | None = None,
        seed: int = 0,
    ) -> None:
        self._path = path if is_hub_dataset(path) else Path(path)
        self._source_column = None if source_column is None else str(source_column)
        self._target_column = None if target_column is None else str(target_column)
        self._dev_size = dev_size
        self._test_size = test_size
        self._max_train_length = max_train_length
        self._seed = seed

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that the file or folder contains."""
        return tuple(
            f"{condition}/{part}" for condition, parts in self.data.partitions.items() for part in parts
        )

    def _load(self) -> PartitionedExamples:
        raw_parts, notes = self._read()
        examples: list[Example] = []
        indices: dict[str, dict[str, list[int]]] = {}
        num_empty = 0
        for raw in raw_parts:
            columns = self._columns(raw)
            notes += (
                [f"{raw.path}: {columns.note}"] if columns.note and columns.note not in str(notes) else []
            )
            for record, parts in _with_parts(raw):
                example = _example(record[1], columns, raw.path, record[0])
                if example is None:
                    num_empty += 1
                    continue
                for condition, part in parts.items():
                    partition = indices.setdefault(
                        condition, {} if raw.split else {part: [] for part in PARTS}
                    )
                    partition.setdefault(part, []).append(len(examples))
                examples.append(example)
        if num_empty:
            left_out = "1 example" if num_empty == 1 else f"{num_empty:,} examples"
            notes.append(f"left out {left_out} with an empty source or target.")
        if not examples:
            raise DataError("there are no examples.", self._path)
        reading_notes = tuple(notes)
        if indices:
            return PartitionedExamples(examples, *self._with_dev(indices, notes), reading_notes)
        partitions = partition_examples(
            examples,
            Path(self._path),
            dev_size=self._dev_size,
            test_size=self._test_size,
            max_train_length=self._max_train_length,
            seed=self._seed,
        )
        notes.append(describe_random_parts(partitions["iid"]))
        return PartitionedExamples(examples, partitions, tuple(notes), reading_notes)

    def _read(self) -> tuple[list[_RawPart], list[str]]:
        """Read all records, and notes on how they were read."""
        given = (self._source_column, self._target_column)
        path = Path(self._path)
        if is_hub_dataset(self._path):
            return _read_hub(self._path)
        if not path.is_dir():
            records, notes = read_records(path, *given)
            return [_RawPart(path, records, None)], [f"{path}: {note}" for note in notes]
        files, notes = find_split_files(path, *given)
        raw_parts = []
        for split in files:
            if len(split.paths) == 2:
                records = [
                    (number, {given[0] or "": list(source), given[1] or "": list(target)})
                    for number, source, target in read_aligned(*split.paths)
                ]
            else:
                records, more = read_records(split.paths[0], *given)
                notes += [f"{split.paths[0]}: {note}" for note in more]
            raw_parts.append(_RawPart(split.paths[0], records, (split.condition, split.part)))
        return raw_parts, notes

    def _columns(self, raw: _RawPart) -> Columns:
        if not raw.records:
            is_table = {".tsv", ".csv"} & set(raw.path.suffixes)
            raise DataError(f"the file has no examples{', only a header' if is_table else ''}.", raw.path)
        number, first = raw.records[0]
        names = {name: value_of(first, name) for name in columns_of(first)}
        try:
            return choose_columns(names, self._source_column, self._target_column)
        except ValueError as error:
            raise DataError(str(error), raw.path, number) from None

    def _with_dev(
        self, indices: Mapping[str, Mapping[str, Sequence[int]]], notes: list[str]
    ) -> tuple[dict[str, dict[str, Sequence[int]]], tuple[str, ...]]:
        """Hold out a tenth of the training examples for dev, where there are none."""
        partitions: dict[str, dict[str, Sequence[int]]] = {}
        if not self._dev_size is self._test_size is self._max_train_length is None:
            notes.append(
                f"{self._path} has its own splits, so dev_size, test_size and max_train_length are ignored."
            )
        for condition, parts in indices.items():
            partitions[condition] = dict(parts)
            if parts.get("train") and not parts.get("dev"):
                partitions[condition], note = hold_out_dev(parts, condition, self._seed)
                notes.append(note)
        return partitions, tuple(notes)


def _read_hub(path: str | Path) -> tuple[list[_RawPart], list[str]]:
    raw_parts, ignored = [], []
    for split, records in read_hub_dataset(path).items():
        part = None if split is None else PART_NAMES.get(split)
        if split is None:
            raw_parts.append(_RawPart(Path(path), records, None))
        elif part is None:
            ignored.append(split)
        else:
            raw_parts.append(_RawPart(Path(path), records, ("iid", part)))
    raw_parts.sort(key=lambda raw: 0 if raw.split is None else PARTS.index(raw.split[1]))
    return raw_parts, [f"{path}: ignored the splits {', '.join(ignored)}."] if ignored else []


def _with_parts(raw: _RawPart) -> list[tuple[tuple[int, Record], dict[str, str]]]:
    """Each record with its part (train, dev or test) under each condition."""
    if raw.split is not None:
        return [(record, dict([raw.split])) for record in raw.records]
    pairs = [(record, _parts(record[1], raw.path, record[0])) for record in raw.records]
    conditions = set(pairs[0][1])
    for (number, _), parts in pairs:
        if set(parts) != conditions:
            raise DataError(
                f"expected the same split columns as in the lines before ({_listed(sorted(conditions))}), "
                f"found {_listed(parts)}.",
                raw.path,
                number,
            )
    return pairs


def _parts(record: Record, path: Path, number: int) -> dict[str, str]:
    parts: dict[str, str] = {}
    for column, condition in SPLIT_COLUMNS.items():
        if column in record:
            part = PART_NAMES.get(str(record[column]).lower())
            if part is None:
                raise DataError(
                    f"{column} should be train, dev or test, found {record[column]!r}. If it is not meant as a split, "
                    "give it another name.",
                    path,
                    number,
                )
            parts[condition] = part
    return parts


def _example(record: Record, columns: Columns, path: Path, number: int) -> Example | None:
    """The example of a record; None if its source or its target is empty."""
    source, target = (
        tuple(token for column in side for token in _tokens(record, column, path, number))
        for side in (columns.source, columns.target)
    )
    if not source or not target:
        return None
    used = {column.partition(".")[0] for column in (*columns.source, *columns.target)}
    used |= {*columns.source, *columns.target, "id", "meta", *SPLIT_COLUMNS}
    other_columns = {key: value for key, value in record.items() if key not in used}
    meta = record.get("meta", {})
    if not isinstance(meta, dict):
        other_columns["meta"], meta = meta, {}
    return Example(source, target, str(record.get("id", number)), {**other_columns, **meta})


def _tokens(record: Record, column: str, path: Path, number: int) -> tuple[str, ...]:
    try:
        value = value_of(record, column)
    except KeyError:
        raise DataError(no_such_column(column, list(columns_of(record))), path, number) from None
    if value is None:
        return ()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list) and all(isinstance(token, str) and token for token in value):
        return tuple(value)
    shown = repr(value)[:80]
    raise DataError(f"{column!r} should be a string or a list of strings, found {shown}.", path, number)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
