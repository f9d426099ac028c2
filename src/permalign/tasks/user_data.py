"""A task that reads its examples from the user's own files.

A file contains one example per line, either as JSON lines or as tab-separated values with a header. An example has a
``source`` and a ``target`` (tokens separated by spaces, or in JSON also a list of tokens) and optionally an ``id``. A
column ``iid``, ``temp``, ``len`` or ``split`` (which means ``iid``) assigns each example to ``train``, ``dev`` or
``test``; if there is no such column, dev and test are drawn at random. All other columns are stored in ``meta``.

Instead of a single file, a folder may contain one file per split, such as ``iid/train.jsonl`` or just ``train.tsv``;
`permalign data make` writes such folders.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.tasks.base import Example
from permalign.tasks.file_readers import read_table, read_text
from permalign.tasks.partitions import (
    PARTS,
    Partition,
    PartitionedExamples,
    PartitionedTask,
    partition_examples,
)

CONDITION_COLUMNS = {"split": "iid", "iid": "iid", "temp": "temp", "len": "len"}
SUFFIXES = (".jsonl", ".tsv", ".jsonl.gz", ".tsv.gz")


class UserData(PartitionedTask):
    """Examples from the user's own file or folder.

    Args:
        path: a ``.jsonl`` or ``.tsv`` file (optionally compressed, ``.gz``), or a folder of them.
        source_column: the name of the column with the sources.
        target_column: the name of the column with the targets.
        dev_size: the number of ``iid/dev`` examples if there is no split column; by default a tenth of all.
        test_size: the number of ``iid/test`` examples if there is no split column; by default a tenth of all.
        max_train_length: if given, and there is no split column, adds the condition ``len``, in which examples with
            longer sources are divided into dev and test.
        seed: the seed of the random splits.
    """

    name = "own"
    description = "your own JSON lines or TSV file with source and target (--path)"

    def __init__(
        self,
        path: str | Path,
        *,
        source_column: str = "source",
        target_column: str = "target",
        dev_size: int | None = None,
        test_size: int | None = None,
        max_train_length: int | None = None,
        seed: int = 0,
    ) -> None:
        self._path = Path(path)
        self._source_column = source_column
        self._target_column = target_column
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
        return self._load_folder() if self._path.is_dir() else self._load_file()

    def _load_folder(self) -> PartitionedExamples:
        examples: list[Example] = []
        partitions: dict[str, dict[str, Sequence[int]]] = {}
        for condition, part, path in _split_files(self._path):
            begin = len(examples)
            examples.extend(example for example, _ in self._read(path))
            partitions.setdefault(condition, {})[part] = range(begin, len(examples))
        return PartitionedExamples(examples, partitions, self._notes())

    def _load_file(self) -> PartitionedExamples:
        examples: list[Example] = []
        indices: dict[str, dict[str, list[int]]] = {}
        for index, (example, parts) in enumerate(self._read(self._path)):
            for condition, part in parts.items():
                partition = indices.setdefault(condition, {part: [] for part in PARTS})
                partition[part].append(index)
            examples.append(example)
        if not indices:
            partitions: Mapping[str, Partition] = partition_examples(
                examples,
                self._path,
                dev_size=self._dev_size,
                test_size=self._test_size,
                max_train_length=self._max_train_length,
                seed=self._seed,
            )
            return PartitionedExamples(examples, partitions)
        return PartitionedExamples(examples, indices, self._notes())

    def _notes(self) -> tuple[str, ...]:
        """A note if sizes of splits were given, although the data has its own splits."""
        if self._dev_size is self._test_size is self._max_train_length is None:
            return ()
        return (f"{self._path} has its own splits, so dev_size, test_size and max_train_length are ignored.",)

    def _read(self, path: Path) -> Iterator[tuple[Example, dict[str, str]]]:
        """Yield each example of a file, together with its part (train, dev or test) under each condition."""
        conditions: set[str] | None = None
        for number, record in _records(path):
            parts = _parts(record, path, number)
            if conditions is None:
                conditions = set(parts)
            if set(parts) != conditions:
                raise DataError(
                    f"expected the same split columns as in the lines before ({_listed(sorted(conditions))}), "
                    f"found {_listed(parts)}.",
                    path,
                    number,
                )
            yield self._example(record, path, number), parts
        if conditions is None:
            raise DataError("the file has no examples.", path)

    def _example(self, record: dict[str, object], path: Path, number: int) -> Example:
        source = _tokens(record, self._source_column, path, number)
        target = _tokens(record, self._target_column, path, number)
        known_columns = {self._source_column, self._target_column, "id", "meta", *CONDITION_COLUMNS}
        other_columns = {key: value for key, value in record.items() if key not in known_columns}
        meta = record.get("meta", {})
        if not isinstance(meta, dict):
            other_columns["meta"], meta = meta, {}
        return Example(source, target, str(record.get("id", number)), {**other_columns, **meta})


def _split_files(folder: Path) -> list[tuple[str, str, Path]]:
    """The condition, the part (train, dev or test) and the path of each data file in a folder."""
    paths: dict[tuple[str, str], Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES)):
        relative = path.relative_to(folder)
        condition = relative.parent.as_posix() if len(relative.parts) > 1 else "iid"
        part = path.name.split(".")[0]
        if part not in PARTS or (condition, part) in paths:
            raise DataError(
                f"is not expected here. A folder may contain one file for each of {_listed(PARTS)}, such as "
                "train.jsonl or len/test.tsv; move other files elsewhere.",
                path,
            )
        paths[condition, part] = path
    if not paths:
        raise DataError(f"the folder has no file that ends in {_listed(SUFFIXES)}.", folder)
    splits = sorted(paths, key=lambda split: (split[0], PARTS.index(split[1])))
    return [(condition, part, paths[condition, part]) for condition, part in splits]


def _records(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    if path.name.removesuffix(".gz").endswith(".tsv"):
        table = read_table(path, header=True)
        for number, columns in table.rows:
            yield number, dict(zip(table.header, columns, strict=True))
    elif path.name.removesuffix(".gz").endswith(".jsonl"):
        for number, text in read_text(path).lines:
            yield number, _parse(text, path, number)
    else:
        raise DataError(f"expected a file that ends in {_listed(SUFFIXES)}, or a folder of them.", path)


class _RepeatedKeyError(Exception):
    """A JSON object contains the same key twice."""


def _with_distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record: dict[str, object] = {}
    for key, value in pairs:
        if key in record:
            raise _RepeatedKeyError(key)
        record[key] = value
    return record


def _parse(text: str, path: Path, number: int) -> dict[str, object]:
    try:
        record = json.loads(text, object_pairs_hook=_with_distinct_keys)
    except _RepeatedKeyError as error:
        raise DataError(
            f"the key {error.args[0]!r} occurs twice. Remove one of them.", path, number
        ) from None
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "it is nested too deeply")
        raise DataError(f"the line is not JSON ({reason}).", path, number) from None
    if "\\ud" in text.lower() and not _is_text(record):
        raise DataError(
            "the line has half of a surrogate pair (\\ud...), which is not valid text.", path, number
        )
    if not isinstance(record, dict):
        raise DataError(
            f"expected a JSON object with source and target, found a {type(record).__name__}.", path, number
        )
    return record


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _parts(record: Mapping[str, object], path: Path, number: int) -> dict[str, str]:
    parts: dict[str, str] = {}
    for column, condition in CONDITION_COLUMNS.items():
        if column in record:
            part = record[column]
            if part not in PARTS:
                raise DataError(
                    f"{column} should be train, dev or test, found {part!r}. If it is not meant as a split, "
                    "give it another name.",
                    path,
                    number,
                )
            parts[condition] = str(part)
    return parts


def _tokens(record: Mapping[str, object], column: str, path: Path, number: int) -> tuple[str, ...]:
    if column not in record:
        raise DataError(f"there is no column {column!r} (found: {_listed(record)}).", path, number)
    value = record[column]
    if isinstance(value, str):
        tokens = tuple(value.split())
    elif isinstance(value, list) and all(isinstance(token, str) and token for token in value):
        tokens = tuple(value)
    else:
        shown = repr(value)[:80]
        raise DataError(f"{column!r} should be a string or a list of strings, found {shown}.", path, number)
    if not tokens:
        raise DataError(f"{column!r} is empty; expected at least one token.", path, number)
    return tokens


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
