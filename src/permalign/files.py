"""Atomic writes, checksums, exclusive locks and fingerprints.

A process that is killed while it writes atomically leaves the old content or the new, never a mixture of both. Files
that are written together have their checksums in one file beside them, by which a damaged file is found before it is
used.
"""

import errno
import filecmp
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Any

from permalign.errors import DataError, PermalignError, excerpt

PARTIAL = ".partial"
"""The names of files and folders that are still being written end in this."""

CHECKSUMS = "checksums.json"
"""The file that holds the checksums of the other files of its folder."""

MAX_JSON_BYTES = 64 * 2**20
"""The size up to which JSON files are read; the vocabularies and configs of large models have a few megabytes."""

_LOCKS_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)

READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The numbers of the errors for a file or folder that may not be written."""


class LockedError(PermalignError):
    """Another process holds an exclusive lock."""


class DamagedFileError(DataError):
    """A file is not the one that was saved.

    Attributes:
        reason: what is wrong with the file, without what to do about it.
    """

    def __init__(self, reason: str, path: Path, record: Path) -> None:
        super().__init__(
            f"{reason}. Restore a copy of it; or, if you changed it yourself, delete {record} to accept the change.",
            path,
        )
        self.reason = f"{path} {reason}"


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
    try:
        yield partial
        for path in [*partial.rglob("*"), partial]:
            _sync(path)
        os.replace(partial, folder)
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)  # on a full disk, it would keep others from writing
        raise
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
    """Copy the files of a folder, except those of one name, into another; each file is replaced atomically.

    The checksums of the target are removed before its first file is replaced, and come back after the last. So a target
    that a process was killed in has none, and others never take it for damaged.

    Raises:
        DamagedFileError: a file of the source is damaged; then the target stays as it was.
    """
    require_unchanged(source)
    names = [
        path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.name != exclude
    ]
    if not target.exists():
        with atomic_folder(target) as folder:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, folder / name)
        return
    changed = [name for name in names if not _same_content(source / name, target / name)]
    if changed:
        (target / CHECKSUMS).unlink(missing_ok=True)
        if (source / CHECKSUMS).is_file():
            changed = [*(name for name in changed if name != Path(CHECKSUMS)), Path(CHECKSUMS)]
    for name in changed:
        _replace(target / name, source / name)


def record_checksums(folder: Path, names: Iterable[str]) -> None:
    """Add the SHA-256 checksums of some files of a folder to its record of them."""
    try:
        known = read_checksums(folder)
    except DamagedFileError:
        known = {}
    write_checksums(folder, known | {name: _checksum(folder / name) for name in names})


def write_checksums(folder: Path, checksums: Mapping[str, str | None]) -> None:
    """Write the record of the checksums of a folder's files, by name."""
    write_text(folder / CHECKSUMS, _describe_checksums(checksums))


def has_checksums(folder: Path, checksums: Mapping[str, str]) -> bool:
    """Whether the record of a folder is just what `write_checksums` writes."""
    try:
        return (folder / CHECKSUMS).read_bytes() == _describe_checksums(checksums).encode()
    except OSError:
        return False


def read_limited_text(path: Path | Traversable, max_bytes: int) -> str:
    """Read a text file in UTF-8, unless it is so large that reading it would take all memory.

    Raises:
        ValueError: the file is larger, or not UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return content.decode("utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON file of at most `MAX_JSON_BYTES`.

    Raises:
        ValueError: the file is larger, or not JSON.
    """
    return json.loads(read_limited_text(path, MAX_JSON_BYTES))


def _describe_checksums(checksums: Mapping[str, str | None]) -> str:
    record = {"format": "permalign checksums", "sha256": dict(sorted(checksums.items()))}
    return json.dumps(record, indent=2) + "\n"


def read_checksums(folder: Path) -> dict[str, str]:
    """The recorded checksums of the files of a folder, by name; none if the folder has no record.

    Raises:
        DamagedFileError: the record cannot be read.
    """
    path = folder / CHECKSUMS
    if not os.path.lexists(path):
        return {}
    try:
        checksums = read_json(path)["sha256"] if path.is_file() else None
    except FileNotFoundError:  # another process has just removed it, as `mirror_folder` does
        return {}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        checksums = None
    if not isinstance(checksums, dict) or not all(isinstance(value, str) for value in checksums.values()):
        raise DamagedFileError("does not hold checksums", path, path)
    for name in checksums:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise DamagedFileError(f"names the file {excerpt(name)} of another folder", path, path)
    return checksums


def require_unchanged(folder: Path, names: Iterable[str] | None = None) -> None:
    """Require that files have the checksums with which they were recorded; files without one pass.

    Args:
        folder: the folder of the files.
        names: their names; None for all that are recorded.

    Raises:
        DamagedFileError: a file has changed, or is missing.
    """
    asked = None if names is None else list(names)
    recorded = read_checksums(folder)
    while (damaged := _find_damaged(folder, recorded, asked)) is not None:
        again = read_checksums(folder)
        if again == recorded:  # else another process is replacing the files, as `mirror_folder` does
            raise damaged
        recorded = again


def restore_files(folder: Path, copies: Iterable[Path]) -> list[str]:
    """Replace damaged files by the same files of other folders, found by name and checksum.

    Returns:
        A line about each file that was restored.
    """
    copies, restored = list(copies), []
    for name, checksum in read_checksums(folder).items():
        if _checksum(folder / name) != checksum:
            intact = [copy / name for copy in copies if _checksum(copy / name) == checksum]
            if intact:
                _replace(folder / name, intact[0])
                restored.append(f"{folder / name} was damaged and is restored from {intact[0]}")
    return restored


def remove_folder(folder: Path) -> None:
    """Remove a folder; if the process is killed meanwhile, what is left has the name of an unfinished one."""
    partial = folder.with_name(f".{folder.name}.removed{PARTIAL}")
    if partial.exists():
        shutil.rmtree(partial)
    os.replace(folder, partial)
    shutil.rmtree(partial)


def _find_damaged(folder: Path, recorded: dict[str, str], names: list[str] | None) -> DamagedFileError | None:
    for name in recorded if names is None else names:
        if name in recorded and (found := _checksum(folder / name)) != recorded[name]:
            reason = "is missing" if found is None else "is damaged: its checksum is not the recorded one"
            return DamagedFileError(reason, folder / name, folder / CHECKSUMS)
    return None


def _checksum(path: Path) -> str | None:
    """The SHA-256 checksum of a file; None if it cannot be read, or is a device, which may have no end."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def _same_content(one: Path, other: Path) -> bool:
    return other.exists() and filecmp.cmp(one, other, shallow=False)


def _replace(path: Path, new: Path) -> None:
    """Replace a file by a copy of another one, atomically."""
    with atomic_file(path) as partial:
        shutil.copyfile(new, partial)


@contextmanager
def exclusive_lock(
    path: Path, busy: str | None = None, advice: str = "", *, wait: bool = False
) -> Iterator[bool]:
    """Hold a lock file; the operating system releases it when the process ends, however it ends.

    The file stays after the release, with the id of the process that last held it. On a file system without locks,
    nothing is locked, and the context is False instead of True.

    Args:
        path: the lock file.
        busy: the beginning of the error message, such as ``"runs/a is being trained"``; the process that holds the
            lock is added.
        advice: the end of the error message.
        wait: wait until the lock is free instead of raising the error.

    Raises:
        LockedError: another process holds the lock, and ``wait`` is false.
        DataError: the lock file cannot be written.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock, is_locked = FileLock(path, blocking=wait, fallback_to_soft=False), True
    try:
        lock.acquire()
    except Timeout:
        holder = _read_holder(path) or "another one"
        raise LockedError(f"{busy or f'{path} is locked'} by process {holder}. {advice}".rstrip()) from None
    except OSError as error:
        if error.errno in READ_ONLY:
            raise DataError(
                f"cannot be written ({error.strerror}). Change the permissions of its folder, or use a copy of it.",
                path,
            ) from error
        if error.errno not in _LOCKS_UNSUPPORTED:
            raise
        is_locked = False
    try:
        _write_holder(path)
        yield is_locked
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
