"""Writing so that a kill at any moment leaves either the old or the new, never a half."""

import filecmp
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name once everything in it is on the disk.

    A folder of that name must not be there, for no system replaces a folder that holds files in one act.
    """
    partial = folder.with_name(f".{folder.name}{PARTIAL}")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    yield partial
    for path in [*partial.rglob("*"), partial]:
        _sync(path)
    os.replace(partial, folder)
    _sync(folder.parent)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of ``path`` once it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}{PARTIAL}")
    yield partial
    _sync(partial)
    os.replace(partial, path)
    _sync(path.parent)


def mirror_folder(source: Path, target: Path, *, leave_out: str) -> None:
    """Make ``target`` hold the files of ``source`` but one name; whoever reads meanwhile finds whole files."""
    names = [
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.name != leave_out
    ]
    if not target.exists():
        with whole_folder(target) as folder:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, folder / name)
        return
    for name in names:
        if not (target / name).exists() or not filecmp.cmp(source / name, target / name, shallow=False):
            with whole_file(target / name) as file:
                shutil.copyfile(source / name, file)


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk; systems that cannot open a folder need no waiting for it."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
