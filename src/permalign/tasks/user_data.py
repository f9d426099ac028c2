"""Your own data as a task, without code.

A file of JSON lines or tab-separated values with a header has one example a line, with ``source`` and
``target`` (tokens separated by spaces; in JSON also a list of tokens). An ``id`` names the example. A column
``iid``, ``temp``, ``len`` or ``split`` that holds ``train``, ``dev`` or ``test`` says which part an example
belongs to (``split`` means ``iid``); without any, dev and test are drawn from a seed. All else is kept as
``meta``. A folder has one such file for each split: ``iid/train.jsonl`` or just ``train.tsv``; this is what
`permalign data make` writes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.tasks.base import Example
from permalign.tasks.data_folder import dataset_file
from permalign.tasks.partitions import (
    PARTS,
    Partition,
    PartitionedExamples,
    PartitionedTask,
    partition_examples,
)
from permalign.tasks.text_files import read_table, read_text

CONDITION_COLUMNS = {"split": "iid", "iid": "iid", "temp": "temp", "len": "len"}
SUFFIXES = (".jsonl", ".tsv", ".jsonl.gz", ".tsv.gz")


class UserData(PartitionedTask):
    """Examples from a file or a folder.

    Args:
        path: a ``.jsonl`` or ``.tsv`` file (also packed, ``.gz``), or a folder of them.
        source_column: the column or field that a model reads.
        target_column: the one it should write.
        dev_size: without a split column, how many examples are held out as dev; by default a tenth.
        test_size: the same for test.
        longest_in_train: without a split column, adds the condition ``len``: longer sources are not trained
            on but halved into dev and test.
        seed: of the random partitions.
    """

    name = "own"
    description = "your own JSON lines or TSV with source and target (--path)"

    def __init__(
        self,
        path: str | Path,
        *,
        source_column: str = "source",
        target_column: str = "target",
        dev_size: int | None = None,
        test_size: int | None = None,
        longest_in_train: int | None = None,
        seed: int = 0,
    ) -> None:
        self._path = Path(path)
        self._source_column = source_column
        self._target_column = target_column
        self._dev_size = dev_size
        self._test_size = test_size
        self._longest_in_train = longest_in_train
        self._seed = seed

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that the file or folder has."""
        return tuple(f"{condition}/{part}" for condition, cut in self.data.partitions.items() for part in cut)

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
        places: dict[str, dict[str, list[int]]] = {}
        for place, (example, parts) in enumerate(self._read(self._path)):
            for condition, part in parts.items():
                cut = places.setdefault(condition, {part: [] for part in PARTS})
                cut[part].append(place)
            examples.append(example)
        if not places:
            partitions: Mapping[str, Partition] = partition_examples(
                examples,
                self._path,
                dev_size=self._dev_size,
                test_size=self._test_size,
                longest_in_train=self._longest_in_train,
                seed=self._seed,
            )
            return PartitionedExamples(examples, partitions)
        return PartitionedExamples(examples, places, self._notes())

    def _notes(self) -> tuple[str, ...]:
        """What to say where the data brings its own splits."""
        if self._dev_size is self._test_size is self._longest_in_train is None:
            return ()
        return (f"{self._path} says itself what is train, dev and test; the sizes asked for do not count.",)

    def _read(self, path: Path) -> Iterator[tuple[Example, dict[str, str]]]:
        """Each example of a file, with the part it belongs to in each condition that the file names."""
        conditions: set[str] | None = None
        for number, record in _records(path):
            parts = _parts(record, path, number)
            if conditions is None:
                conditions = set(parts)
            if set(parts) != conditions:
                raise DataError(
                    f"expected the same split fields as in the lines before ({_words(sorted(conditions))}), "
                    f"found {_words(parts)}.",
                    path,
                    number,
                )
            yield self._example(record, path, number), parts
        if conditions is None:
            raise DataError("the file has no examples.", path)

    def _example(self, record: dict[str, object], path: Path, number: int) -> Example:
        source = _tokens(record, self._source_column, path, number)
        target = _tokens(record, self._target_column, path, number)
        used = {self._source_column, self._target_column, "id", "meta", *CONDITION_COLUMNS}
        rest = {key: value for key, value in record.items() if key not in used}
        meta = record.get("meta", {})
        if not isinstance(meta, dict):
            rest["meta"], meta = meta, {}
        return Example(source, target, str(record.get("id", number)), {**rest, **meta})


class ChineseEnglishDocs(UserData):
    """Sentences of Chinese software documentation and their English originals, from docs.tsv.gz.

    Written, technical prose as a free stand-in for FBIS: ``len`` is English of at most 29 tokens against
    exactly 30.
    """

    name = "zh-en-docs"
    description = "Chinese to English, software documentation (place docs.tsv.gz in zh-en/)"
    metric = "bleu"

    def __init__(self, data_dir: str | Path | None = None) -> None:
        self._data_dir = data_dir
        super().__init__("docs.tsv.gz", source_column="zh", target_column="en")

    def _load(self) -> PartitionedExamples:
        self._path = dataset_file("zh-en", "docs.tsv.gz", self._data_dir)
        return super()._load()


def _split_files(folder: Path) -> list[tuple[str, str, Path]]:
    """Condition, part and path of each data file, in reading order."""
    found: dict[tuple[str, str], Path] = {}
    for path in sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES)):
        place = path.relative_to(folder)
        condition = place.parent.as_posix() if len(place.parts) > 1 else "iid"
        part = path.name.split(".")[0]
        if part not in PARTS or (condition, part) in found:
            raise DataError(
                f"does not fit: a folder has at most one file for each of {_words(PARTS)}, such as "
                "train.jsonl or len/test.tsv.",
                path,
            )
        found[condition, part] = path
    if not found:
        raise DataError(f"there is no file that ends in {_words(SUFFIXES)} in the folder.", folder)
    order = sorted(found, key=lambda split: (split[0], PARTS.index(split[1])))
    return [(condition, part, found[condition, part]) for condition, part in order]


def _records(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    if path.name.removesuffix(".gz").endswith(".tsv"):
        table = read_table(path, header=True)
        for number, columns in table.rows:
            yield number, dict(zip(table.header, columns, strict=True))
    elif path.name.removesuffix(".gz").endswith(".jsonl"):
        for number, text in read_text(path).lines:
            yield number, _parse(text, path, number)
    else:
        raise DataError(f"expected a file that ends in {_words(SUFFIXES)}, or a folder of them.", path)


class _RepeatedKeyError(Exception):
    """A JSON object that says two things under one name."""


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record: dict[str, object] = {}
    for key, value in pairs:
        if key in record:
            raise _RepeatedKeyError(key)
        record[key] = value
    return record


def _parse(text: str, path: Path, number: int) -> dict[str, object]:
    try:
        record = json.loads(text, object_pairs_hook=_without_repetition)
    except _RepeatedKeyError as error:
        raise DataError(f"the key {error.args[0]!r} stands there twice.", path, number) from None
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "it is nested too deeply")
        raise DataError(f"the line is not JSON ({reason}).", path, number) from None
    if "\\ud" in text.lower() and not _is_text(record):
        raise DataError("the line has half of a surrogate pair, which is no text.", path, number)
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
        raise DataError(f"there is no {column!r} (found: {_words(record)}).", path, number)
    value = record[column]
    if isinstance(value, str):
        tokens = tuple(value.split())
    elif isinstance(value, list) and all(isinstance(token, str) and token for token in value):
        tokens = tuple(value)
    else:
        found = repr(value)[:80]
        raise DataError(f"{column!r} should be a string or a list of strings, found {found}.", path, number)
    if not tokens:
        raise DataError(f"{column!r} is empty.", path, number)
    return tokens


def _words(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
