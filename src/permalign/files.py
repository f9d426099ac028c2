"""Atomic writes, exclusive locks and fingerprints.

A process that is killed while it writes atomically leaves the old content or the new, never a mixture of both.
"""

import errno
import filecmp
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from permalign.errors import DataError, PermalignError

PARTIAL = ".partial"
"""The names of files and folders that are still being written end in this."""

_LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


class LockedError(PermalignError):
    """Another process holds an exclusive lock."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write; once it is on disk it replaces ``path``, whose folder is made if needed.

    If the block raises, the temporary file is removed and ``path`` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    try:
        yield partial
        _sync(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    _sync(path.parent)


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it is renamed to ``folder`` once everything in it is on disk.

    ``folder`` must not exist: no operating system replaces a folder that holds files in one step.
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


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically.

    Raises:
        DataError: the file cannot be written.
    """
    _write(path, [text])


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a UTF-8 text file atomically, line by line; the lines are given without their line ends.

    Raises:
        DataError: the file cannot be written.
    """
    _write(path, (line + "\n" for line in lines))


def _write(path: Path, chunks: Iterable[str]) -> None:
    try:
        with atomic_file(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(chunks)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from error


def mirror_folder(source: Path, target: Path, *, exclude: str) -> None:
    """Copy the files of a folder, except those of one name, into another; each file is replaced atomically."""
    names = [
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.name != exclude
    ]
    if not target.exists():
        with atomic_folder(target) as folder:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, folder / name)
        return
    for name in names:
        if not (target / name).exists() or not filecmp.cmp(source / name, target / name, shallow=False):
            with atomic_file(target / name) as partial:
                shutil.copyfile(source / name, partial)


@contextmanager
def exclusive_lock(
    path: Path, busy: str | None = None, advice: str = "", *, wait: bool = False
) -> Iterator[None]:
    """Hold a lock file; the operating system releases it when the process ends, however it ends.

    The file stays after the release, with the id of the process that last held it. On a file system without locks,
    nothing is locked.

    Args:
        path: the lock file.
        busy: the beginning of the error message, such as ``"runs/a is being trained"``; the process that holds the
            lock is added.
        advice: the end of the error message.
        wait: wait until the lock is free instead of raising the error.

    Raises:
        LockedError: another process holds the lock, and ``wait`` is false.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, blocking=wait, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        holder = _read_holder(path) or "another one"
        raise LockedError(f"{busy or f'{path} is locked'} by process {holder}. {advice}".rstrip()) from None
    except OSError as error:
        if error.errno not in _LOCKS_UNSUPPORTED:
            raise
    try:
        _write_holder(path)
        yield
    finally:
        lock.release()


def fingerprint(chunks: Iterable[bytes]) -> str:
    """The SHA-256 digest of the concatenation of some bytes, in hexadecimal.

    >>> fingerprint([b"a", b"b"]) == fingerprint([b"ab"])
    True
    """
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _read_holder(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:  # Windows forbids reading a locked file
        return ""


def _write_holder(path: Path) -> None:
    try:
        path.write_text(f"{os.getpid()}\n", encoding="utf-8")
    except PermissionError:  # Windows forbids writing to a locked file
        return


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk; Windows cannot open folders, and does not need to wait for them."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
