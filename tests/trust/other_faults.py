"""Runs on a full disk, in a read-only folder, in a folder that is removed, and with two processes at once.

Each run must end in one line that says what to do, or go on; and after that be resumed to the files of a whole run.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tests.training.small_run import SILENT, options, write_data
from tests.training.test_lost_folders import AfterStep
from tests.trust.random_kills import results

from permalign.errors import PermalignError
from permalign.training.launch import resume, train
from permalign.training.progress_display import Display

NOBODY = 65534
"""The user without rights on Linux; root may write to read-only folders."""

SIZES = (40, 100, 160, 220)
"""Sizes of disks in kB, each too small for a run."""

ROOMS = (300, 3_000, 6_000, 12_000)
"""Sizes in bytes that no file may exceed, where no disk can be made."""

PARTS = (".", "model", "predictions", "events", "checkpoints", "state")
"""The folders of a run that are removed."""


class Faults:
    """Counts how runs end that meet a fault, and compares their files with those of a whole run.

    Attributes:
        counts: the counts of faults, of runs resumed to the same files and of refusals in one line.
        wrong: the cases that ended in any other way.
        skipped: the faults that cannot be made on this machine, with the reasons.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, write_data(folder)
        train(options(self.data), folder / "whole", display=SILENT)
        self.expected = results(folder / "whole")
        self.counts = {"faults": 0, "same": 0, "refused": 0}
        self.wrong: list[str] = []
        self.skipped: list[str] = []

    def begin(self, run: Path, display: Display = SILENT) -> str | None:
        """Train a run, or resume it if it was started; returns the error that it ends in, None for a good end."""
        try:
            if (run / "config.yaml").exists():
                resume(run, display=display)
            else:
                train(options(self.data), run, display=display)
        except PermalignError as error:
            return str(error)
        except Exception as error:
            return f"not an error for users:\n{error!r}"
        return None

    def judge(self, case: str, run: Path, error: str | None, advice: tuple[str | None, ...]) -> None:
        """Judge how a session ended with a fault, and resume the run without it.

        Args:
            case: describes the fault.
            run: the folder of the run.
            error: what the session ended in; None for a good end.
            advice: what the error may say to do; with None among it, a good end is allowed, too.
        """
        self.counts["faults"] += 1
        if not (None in advice if error is None else _is_clear(error, advice)):
            self.wrong.append(f"{case}: {error!r}")
            return
        refusal = self.begin(run)
        if refusal is not None and _is_clear(refusal, ("Restore a copy",)):
            self.counts["refused"] += 1
        elif refusal is not None:
            self.wrong.append(f"{case}, resumed: {refusal!r}")
        elif results(run) != self.expected:
            self.wrong.append(f"{case}: other files than those of a whole run")
        else:
            self.counts["same"] += 1


def other_faults(folder: Path, seconds: float) -> Faults:
    """Try all faults, until the time is over."""
    faults, end = Faults(folder), time.monotonic() + seconds
    for kind in (_full_disks, _read_only_folders, _removed_folders, _two_processes):
        for _ in kind(faults):
            if time.monotonic() > end:
                break
    return faults


def _full_disks(faults: Faults) -> Iterator[None]:
    advice = ("Free some space, and resume the run with", "Free some space, and start the run again")
    disk = faults.folder / "disk"
    disk.mkdir()
    for size in SIZES:
        if _call("mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)):
            try:
                error = faults.begin(disk / "run")
                _call("mount", "-o", "remount,size=100m", str(disk))
                faults.judge(f"disk of {size} kB", disk / "run", error, advice)
            finally:
                _call("umount", "--lazy", str(disk))  # what was read may still be mapped into memory
            yield
        elif size == SIZES[0]:
            faults.skipped.append("disks of a fixed size: mount is not allowed")
    for room in ROOMS:
        run = faults.folder / f"room-{room}"
        with _limited_files(room):
            error = faults.begin(run)
        faults.judge(f"files of at most {room} bytes", run, error, advice)
        yield


def _read_only_folders(faults: Faults) -> Iterator[None]:
    """As a user without rights, in a forked process that imported all it needs."""
    for step in (2, 7, 10):
        place = faults.folder / f"read-only-{step}"
        place.mkdir()
        run, message = place / "run", place / "message"
        _own(place)

        def session(run: Path = run, message: Path = message, step: int = step) -> None:
            error = faults.begin(run, AfterStep(step, lambda: _forbid_writing(run)))
            message.write_text(error or "")

        if not _in_child(session):
            faults.skipped.append("read-only folders: no process of another user can be started")
            return
        for path in [run, *run.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        faults.judge(
            f"read-only after step {step}", run, message.read_text() or None, ("Make it writable again",)
        )
        yield


def _removed_folders(faults: Faults) -> Iterator[None]:
    for part, step in [(".", 2), *((part, 10) for part in PARTS)]:
        run = faults.folder / f"removed-{PARTS.index(part)}-{step}"
        removed = run / part
        error = faults.begin(run, AfterStep(step, lambda removed=removed: shutil.rmtree(removed)))
        advice = ("or start the run again",) if part == "." else ("To go on, resume the run with", None)
        faults.judge(f"{part} removed after step {step}", run, error, advice)
        yield


def _two_processes(faults: Faults) -> Iterator[None]:
    for step in (2, 7):
        run, second = faults.folder / f"two-{step}", []

        def start_another(run: Path = run, second: list[bool] = second) -> None:
            program = (
                "import sys\nfrom pathlib import Path\nfrom permalign.files import LockedError\n"
                "from permalign.training.launch import resume\n"
                "try:\n    resume(Path(sys.argv[1]))\n"
                "except LockedError as error:\n    print(error)\n    sys.exit(7)"
            )
            done = subprocess.run([sys.executable, "-c", program, str(run)], capture_output=True, text=True)
            second.append(done.returncode == 7 and _is_clear(done.stdout.strip(), ("Wait until it ends",)))

        error = faults.begin(run, AfterStep(step, start_another))
        if second != [True]:
            faults.wrong.append(
                f"two processes after step {step}: the second one was not refused in one line"
            )
        faults.judge(f"two processes after step {step}", run, error, (None,))
        yield


def _is_clear(message: str, advice: tuple[str | None, ...]) -> bool:
    return len(message.splitlines()) == 1 and any(words in message for words in advice if words is not None)


def _call(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


@contextmanager
def _limited_files(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _own(place: Path) -> None:
    """Let the user without rights write to a folder, and reach it."""
    if os.geteuid() == 0:
        os.chown(place, NOBODY, NOBODY)
        for parent in place.parents:
            if parent.stat().st_uid == 0 and parent.is_relative_to("/tmp") and parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o055)


def _forbid_writing(run: Path) -> None:
    for path in [*run.rglob("*"), run]:
        path.chmod(0o555 if path.is_dir() else 0o444)


def _in_child(work: Callable[[], None]) -> bool:
    """Do work in a forked process without the rights of root; returns whether it ended well."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = other_faults(Path(sys.argv[1]), float(sys.argv[2]))
    print(found.counts, found.wrong, found.skipped, sep="\n")
