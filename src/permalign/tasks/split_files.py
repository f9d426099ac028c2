"""Find the files of the splits in a user's folder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from permalign.errors import DataError
from permalign.tasks.partitions import PARTS
from permalign.tasks.record_files import SUFFIXES, is_record_file

PART_NAMES = {
    **{part: part for part in PARTS},
    "training": "train",
    "validation": "dev",
    "valid": "dev",
    "val": "dev",
    "development": "dev",
}
"""The names of files, splits and values that stand for train, dev and test."""


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The files of one split: one file of records, or two aligned files of sources and targets."""

    condition: str
    part: str
    paths: tuple[Path, ...]


def find_split_files(
    folder: Path, source_suffix: str | None, target_suffix: str | None
) -> tuple[list[SplitFiles], list[str]]:
    """Find the file of each split, such as ``train.tsv`` or ``len/test.jsonl``; or aligned ones, such as ``train.en``.

    The predictions of runs that are kept in the folder are not data.

    Args:
        folder: the folder.
        source_suffix: what the names of aligned files of sources end in, such as ``en``.
        target_suffix: what the names of aligned files of targets end in, such as ``de``.

    Returns:
        The files, and a note on those that are ignored.

    Raises:
        DataError: there is no such file, or there are two for the same split.
    """
    runs = {path.parent for path in folder.rglob("config.yaml")} - {folder}
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".") and runs.isdisjoint(path.parents)
    )
    found: dict[tuple[str, str], Path] = {}
    ignored: list[Path] = []
    for path in filter(is_record_file, files):
        split = _split_of(path, folder)
        if split is None:
            ignored.append(path)
        elif split in found:
            raise DataError(f"holds {'/'.join(split)}, but so does {found[split]}. Remove one of them.", path)
        else:
            found[split] = path
    if not found:
        return _find_aligned(folder, files, source_suffix, target_suffix), []
    notes = [f"{_names(ignored)} in {folder} ignored: not named train, dev or test."] if ignored else []
    return [SplitFiles(*split, (found[split],)) for split in sorted(found, key=_order)], notes


def _find_aligned(
    folder: Path, files: Sequence[Path], source_suffix: str | None, target_suffix: str | None
) -> list[SplitFiles]:
    pairs: dict[tuple[str, str], dict[str, Path]] = {}
    for path in files:
        split = _split_of(path, folder)
        suffix = path.name.removesuffix(".gz").partition(".")[2]
        if split is not None and suffix:
            pairs.setdefault(split, {})[suffix] = path
    suffixes = sorted({suffix for pair in pairs.values() for suffix in pair})
    if len(suffixes) < 2:
        raise DataError(
            f"the folder has no train, dev or test file that ends in {', '.join(SUFFIXES)}, and no aligned files such "
            "as train.en and train.de.",
            folder,
        )
    if source_suffix is None or target_suffix is None:
        raise DataError(
            f"the folder has files that end in {' and '.join(suffixes)}. Say which are the sources and which the "
            f"targets, for example with --source-column {suffixes[0]} --target-column {suffixes[1]} (source_column and "
            "target_column in a config).",
            folder,
        )
    for split, pair in pairs.items():
        for suffix in (source_suffix, target_suffix):
            if suffix not in pair:
                raise DataError(f"there is no {split[1]}.{suffix} (found: {_names(pair.values())}).", folder)
    return [
        SplitFiles(*split, (pairs[split][source_suffix], pairs[split][target_suffix]))
        for split in sorted(pairs, key=_order)
    ]


def _split_of(path: Path, folder: Path) -> tuple[str, str] | None:
    """The condition and the part that a file is for; None if its name is not that of a part."""
    relative = path.relative_to(folder)
    part = PART_NAMES.get(path.name.split(".")[0].lower())
    condition = relative.parent.as_posix() if len(relative.parts) > 1 else "iid"
    return None if part is None else (condition, part)


def _order(split: tuple[str, str]) -> tuple[str, int]:
    return split[0], PARTS.index(split[1])


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(path.name for path in paths)
