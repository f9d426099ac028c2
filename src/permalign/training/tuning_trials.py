"""Which trial of a search is trained next: one that a killed process left, or a new one.

A process holds the lock of a trial while it trains it, and the operating system releases the lock when the process
ends, however it ends. So a trial that is running and not locked was left by a process that is gone. It is resumed with
the same values, from the last checkpoint of its run.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex

import optuna
from optuna.trial import TrialState

from permalign.files import LockedError, exclusive_lock, write_text

FOLDER = "folder"
"""The user attribute of trials with the identifier of the folder in which their runs are."""

RESUMED = "resumed"
"""The user attribute of trials that were resumed: from which step, and how often from there."""

MAX_RESUMES = 3
"""How often a trial is resumed from the same step; one that is always killed there, say for its memory, has failed."""


class TrialQueue:
    """The trials of a study whose runs are in one folder, which several processes may share.

    Other machines may work on the same study in folders of their own, whose trials are left to them.
    """

    def __init__(self, study: optuna.Study, folder: Path) -> None:
        self._study, self._locks = study, folder / ".locks"
        self._id = _folder_id(folder)

    @contextmanager
    def left_trial(self) -> Iterator[optuna.Trial | None]:
        """Lock a trial that a process left unfinished; None if there is none."""
        with ExitStack() as stack:
            for number in self._running():
                try:
                    is_locked = stack.enter_context(exclusive_lock(self._lock(number)))
                except LockedError:
                    continue
                # by now it may have been finished; and without locks, somebody may be training it
                if is_locked and (identifier := self._running().get(number)) is not None:
                    yield optuna.Trial(self._study, identifier)
                    return
                stack.close()
            yield None

    @contextmanager
    def new_trial(self) -> Iterator[optuna.Trial]:
        """Start and lock a new trial."""
        trial = self._study.ask()
        with exclusive_lock(self._lock(trial.number), wait=True):
            trial.set_user_attr(FOLDER, self._id)  # only now that it is locked may others look at it
            yield trial

    def num_busy(self) -> int:
        """The number of trials in the folder that processes are training."""
        return sum(map(self._is_busy, self._running()))

    def _is_busy(self, number: int) -> bool:
        try:
            with exclusive_lock(self._lock(number)):
                return False
        except LockedError:
            return True

    def _lock(self, number: int) -> Path:
        return self._locks / f"trial-{number:04d}"

    def _running(self) -> dict[int, int]:
        """The identifiers in the database of the running trials of this folder, by number."""
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return {trial.number: trial._trial_id for trial in trials if trial.user_attrs.get(FOLDER) == self._id}


def may_be_resumed(trial: optuna.Trial, step: int | None) -> bool:
    """Count that a trial is resumed from a step, and say whether it got further since, or may be tried once more."""
    before, count = trial.user_attrs.get(RESUMED, (None, 0))
    count = count + 1 if before == step else 1
    trial.set_user_attr(RESUMED, (step, count))
    return count <= MAX_RESUMES


def _folder_id(folder: Path) -> str:
    """A random identifier of a folder, which is written there when it is first asked for."""
    path = folder / ".search-id"
    with exclusive_lock(folder / ".locks" / "search-id", wait=True):
        if not path.exists():
            write_text(path, token_hex(8))
        return path.read_text(encoding="utf-8")
