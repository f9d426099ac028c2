"""A grid of cells, run by several processes of one thread each, and gone on with where it was stopped.

Two processes of one thread are faster than one of two (see `benchmarks.processes`), so there are as many as cores.
Seeds come one after the other: a grid that is stopped early has all cells with the first seed rather than some cells
with all.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from permalign.errors import PermalignError
from permalign.reproduction.cells import Cell
from permalign.reproduction.records import Records, RunKey
from permalign.reproduction.work import BUSY, Job

PATIENCE = 300.0
"""Seconds that a process has to save its run when it is asked to stop."""

LOOK_EVERY = 0.2


@dataclass
class Plan:
    """What there is to do.

    Attributes:
        jobs: runs with missing results.
        done: how many cells and seeds have their results.
        impossible: cells whose options are wrong, with the reason.
    """

    jobs: list[Job] = field(default_factory=list)
    done: int = 0
    impossible: dict[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        finished: names of runs that were finished.
        failed: names of those that failed.
        left: names of those that have to be gone on with or begun.
        interrupted: whether it was Ctrl-C that stopped the grid.
    """

    finished: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    interrupted: bool = False


def make_plan(
    cells: Sequence[Cell], seeds: Sequence[int], settings: Iterable[str], runs: Path, records: Records
) -> Plan:
    """Which runs are missing, or lack the result of a trial; cells that share a run become one job."""
    plan = Plan()
    settings = tuple(settings)
    jobs: dict[str, Job] = {}
    for seed in seeds:
        for cell in cells:
            try:
                key = RunKey.of(cell, seed, settings)
            except PermalignError as error:
                plan.impossible[cell.name] = str(error)
                continue
            record = records.read(key.name)
            if record is not None and cell.trial.key in record.tests:
                plan.done += 1
                continue
            job = jobs.get(key.name, Job(key, (), runs, records.folder))
            if cell.trial not in job.trials:
                job = replace(job, trials=(*job.trials, cell.trial))
            jobs[key.name] = job
    plan.jobs = list(jobs.values())
    return plan


def run_jobs(
    jobs: Sequence[Job],
    processes: int,
    *,
    minutes: float | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Outcome:
    """Do jobs, several at a time; one that fails does not stop the others.

    Args:
        jobs: what to do, in this order.
        processes: how many at a time.
        minutes: stop after this time; runs are saved, and gone on with next time.
        say: is told what happens.
    """
    outcome = Outcome()
    end = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    waiting, active = list(jobs), dict[subprocess.Popen[bytes], Job]()
    with _polite_kill():
        try:
            while (waiting or active) and time.monotonic() < end:
                while waiting and len(active) < processes:
                    job = waiting.pop(0)
                    active[start(job)] = job
                    say(f"begun: {job.key.name} ({len(waiting)} more wait)")
                time.sleep(LOOK_EVERY)
                for process in [one for one in active if one.poll() is not None]:
                    _take_note(process, active.pop(process), outcome, say)
        except KeyboardInterrupt:
            outcome.interrupted = True
        if active:
            say("stopping: runs are being saved")
        stop(active)
    for process, job in active.items():
        _take_note(process, job, outcome, say, stopped=True)
    outcome.left += [job.key.name for job in waiting]
    return outcome


def default_processes() -> int:
    """One for each core that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(usable(0)) if usable else os.cpu_count() or 1


def start(job: Job) -> "subprocess.Popen[bytes]":
    """A process of one thread for a job; what it says goes into a file beside the runs.

    It is out of reach of the terminal's Ctrl-C, which would reach it a second time through `stop`; and it holds a pipe
    from here, so that it notices if this process is killed.
    """
    log = log_file(job)
    log.parent.mkdir(parents=True, exist_ok=True)
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    with log.open("a", encoding="utf-8") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "permalign.reproduction.work", job.as_json()],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **one_thread},
            start_new_session=True,
        )


def stop(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    """Ask processes to save and stop, and wait for them; those that take too long are killed."""
    processes = list(processes)
    for process in processes:
        process.terminate()
    end = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(end - time.monotonic(), 0.0))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()


def log_file(job: Job) -> Path:
    """Where a job's process writes what it says."""
    return job.runs / "logs" / f"{job.key.name}.log"


def _take_note(
    process: "subprocess.Popen[bytes]",
    job: Job,
    outcome: Outcome,
    say: Callable[[str], None],
    stopped: bool = False,
) -> None:
    assert process.stdin is not None
    process.stdin.close()
    name = job.key.name
    record = Records(job.records).read(name)
    if process.returncode == 0:
        outcome.finished.append(name)
        say(f"finished: {name}")
    elif record is not None and record.failure is not None:
        outcome.failed.append(name)
        say(f"failed: {name}: {record.failure} (see {log_file(job)})")
    elif stopped or process.returncode == BUSY:
        outcome.left.append(name)
        say(f"left: {name}" + (" (another process is at it)" if process.returncode == BUSY else ""))
    else:
        outcome.failed.append(name)
        say(f"failed: {name}: its process ended with {process.returncode} (see {log_file(job)})")


@contextmanager
def _polite_kill() -> Iterator[None]:
    """Let a polite kill be like Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
