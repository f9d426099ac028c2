"""Explain why a run can no longer be written, and how it goes on: a full disk, a folder that was removed or locked."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from permalign.errors import DataError
from permalign.files import READ_ONLY
from permalign.training.run_directory import RunDirectory

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The numbers of the errors for a full disk, a used-up quota and a file that is too large."""

REMOVED = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
"""The numbers of the errors for a file or folder that is no longer there."""

NOT_WRITABLE = (*READ_ONLY, errno.EIO)
"""The numbers of the errors for a file system that does not let us write, or cannot."""


@contextmanager
def explain_full_disk(run: RunDirectory) -> Iterator[None]:
    """Turn the error of a full disk into one that says how the run goes on."""
    try:
        yield
    except (OSError, DataError) as error:
        cause = _cause(error)
        if cause is None or cause.errno not in FULL_DISK:
            raise
        raise DataError(
            f"cannot be written ({cause.strerror}). Free some space, and {_go_on(run)}.",
            _path(error) or run.path,
        ) from cause


@contextmanager
def explain_lost_folder(run: RunDirectory) -> Iterator[None]:
    """Turn the errors of a run whose files are removed or locked while it is trained into one line with advice."""
    try:
        yield
    except (OSError, DataError) as error:
        cause, path = _cause(error), _path(error)
        if not run.config.exists():
            raise DataError(
                f"was removed while the run was being trained. Restore it and resume the run with `permalign train "
                f"--resume {run.path}`, or start the run again.",
                run.path,
            ) from cause
        if cause is None or (path is not None and not path.absolute().is_relative_to(run.path.absolute())):
            raise
        if path is not None and cause.errno in REMOVED:
            raise DataError(
                f"was removed or replaced while the run was being trained. To go on, {_go_on(run)}.",
                _removed_folder(run, path),
            ) from cause
        if cause.errno in NOT_WRITABLE:
            raise DataError(
                f"cannot be written ({cause.strerror}). Make it writable again, and {_go_on(run)}.",
                path or run.path,
            ) from cause
        raise


def require_same_file(handle: int, path: Path) -> None:
    """Require that an open file is still the one at its path, and was not removed or replaced.

    Raises:
        FileNotFoundError: it is not.
    """
    try:
        same = os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        same = False
    if not same:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _cause(error: OSError | DataError) -> OSError | None:
    """The error of the operating system behind an error."""
    found = error if isinstance(error, OSError) else error.__cause__
    return found if isinstance(found, OSError) else None


def _path(error: OSError | DataError) -> Path | None:
    name = error.filename if isinstance(error, OSError) else error.path
    return None if name is None or isinstance(name, int) else Path(os.fsdecode(name))


def _go_on(run: RunDirectory) -> str:
    if run.config.exists():
        return f"resume the run with `permalign train --resume {run.path}`"
    return "start the run again"


def _removed_folder(run: RunDirectory, path: Path) -> Path:
    """The outermost folder on the way from a run to one of its files that is no longer there."""
    missing = path
    for folder in path.absolute().parents:
        if folder == run.path.absolute():
            break
        if not folder.exists():
            missing = run.path / folder.relative_to(run.path.absolute())
    return missing
