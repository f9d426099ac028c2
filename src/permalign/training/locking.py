"""One process at a time writes into a run."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from permalign.errors import PermalignError

LOCK = ".lock"
UNKNOWN_TO_THE_DISK = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold a run; the system lets it go when the process ends, however that comes about.

    The file stays, for a process that opened it before it was removed would lock what nobody else sees. Disks and
    systems without locks go without.

    Raises:
        PermalignError: another process holds it.
    """
    run.mkdir(parents=True, exist_ok=True)
    with (run / LOCK).open("a+", encoding="utf-8") as file:
        try:
            _lock(file.fileno())
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            raise PermalignError(
                f"{run} is being trained by process {holder or 'another one'}. Wait until it ends, or stop it "
                "(Ctrl-C there saves the run)."
            ) from None
        except OSError as error:
            if error.errno not in UNKNOWN_TO_THE_DISK:
                raise
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _lock(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
