"""Run a grid of cells in several processes of one thread each; a grid that was stopped can be resumed.

Two processes of one thread are faster than one process of two (see `benchmarks.processes`), so there is one for each
core. The first seed of all cells comes before the second seed of any, so a grid that is stopped early has all cells
with the first seed rather than some cells with all seeds.
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
from permalign.reproduction.records import RunKey, RunStore
from permalign.reproduction.worker import BUSY, Job

STOP_TIMEOUT = 300.0
"""Seconds that a process has to save its run when it is asked to stop."""

POLL_INTERVAL = 0.2


@dataclass
class Plan:
    """The runs that a grid still needs.

    Attributes:
        jobs: the runs that lack results.
        done: the seeds that have their results, by the name of the cell.
        impossible: the cells whose options are wrong, with the reason.
    """

    jobs: list[Job] = field(default_factory=list)
    done: dict[str, list[int]] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)

    @property
    def num_done(self) -> int:
        """How many results there are, counting every cell and seed."""
        return sum(map(len, self.done.values()))


@dataclass
class Outcome:
    """How the runs of a grid ended.

    Attributes:
        finished: the names of runs that were finished.
        failed: the names of runs that failed.
        left: the names of runs that were interrupted or not begun.
        interrupted: whether Ctrl-C stopped the grid.
    """

    finished: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    interrupted: bool = False


def make_plan(
    cells: Sequence[Cell], seeds: Sequence[int], settings: Iterable[str], runs: Path, store: RunStore
) -> Plan:
    """Find the runs that are missing or lack an evaluation; cells that share a run become one job."""
    plan = Plan()
    settings = tuple(settings)
    records = store.read()
    jobs: dict[str, Job] = {}
    for seed in seeds:
        for cell in cells:
            try:
                key = RunKey.of(cell, seed, settings)
            except PermalignError as error:
                plan.impossible[cell.name] = str(error)
                continue
            record = records.get(key.name)
            if record is not None and cell.evaluation.key in record.evaluations:
                plan.done.setdefault(cell.name, []).append(seed)
                continue
            job = jobs.get(key.name, Job(key, (), runs, store.path))
            if cell.evaluation not in job.evaluations:
                job = replace(job, evaluations=(*job.evaluations, cell.evaluation))
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
    """Run jobs, several at a time; one that fails does not stop the others.

    Args:
        jobs: the jobs, in the order in which they are started.
        processes: how many run at a time.
        minutes: stop after this time; unfinished runs are saved and can be resumed.
        say: receives a message for every event.
    """
    outcome = Outcome()
    end = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    waiting, active = list(jobs), dict[subprocess.Popen[bytes], Job]()
    with _sigterm_interrupts():
        try:
            while (waiting or active) and time.monotonic() < end:
                while waiting and len(active) < processes:
                    job = waiting.pop(0)
                    active[start(job)] = job
                    say(f"started: {job.key.name} ({len(waiting)} waiting)")
                time.sleep(POLL_INTERVAL)
                for process in [process for process in active if process.poll() is not None]:
                    _note_end(process, active.pop(process), outcome, say)
        except KeyboardInterrupt:
            outcome.interrupted = True
        if active:
            say("stopping: saving runs")
        stop(active)
    for process, job in active.items():
        _note_end(process, job, outcome, say, stopped=True)
    outcome.left += [job.key.name for job in waiting]
    return outcome


def default_processes() -> int:
    """The number of cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(usable(0)) if usable else os.cpu_count() or 1


def start(job: Job) -> "subprocess.Popen[bytes]":
    """Start a process of one thread for a job; its output goes to a log file beside the runs.

    The process has its own session, out of reach of the terminal's Ctrl-C, because `stop` asks it to end. It reads from
    a pipe that this process holds open, so it notices if this process is killed.
    """
    log = log_file(job)
    log.parent.mkdir(parents=True, exist_ok=True)
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    with log.open("a", encoding="utf-8") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "permalign.reproduction.worker", job.as_json()],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **one_thread},
            start_new_session=True,
        )


def stop(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    """Ask processes to save their runs and stop, and wait; those that take too long are killed."""
    processes = list(processes)
    for process in processes:
        process.terminate()
    end = time.monotonic() + STOP_TIMEOUT
    for process in processes:
        try:
            process.wait(max(end - time.monotonic(), 0.0))
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()


def log_file(job: Job) -> Path:
    """The log file of a job's process."""
    return job.runs / "logs" / f"{job.key.name}.log"


def _note_end(
    process: "subprocess.Popen[bytes]",
    job: Job,
    outcome: Outcome,
    say: Callable[[str], None],
    stopped: bool = False,
) -> None:
    assert process.stdin is not None
    process.stdin.close()
    name = job.key.name
    record = RunStore(job.records).find(name)
    if process.returncode == 0:
        outcome.finished.append(name)
        say(f"finished: {name}")
    elif record is not None and record.failure is not None:
        outcome.failed.append(name)
        say(f"failed: {name}: {record.failure} (see {log_file(job)})")
    elif stopped or process.returncode == BUSY:
        outcome.left.append(name)
        say(f"left: {name}" + (" (another process is working on it)" if process.returncode == BUSY else ""))
    else:
        outcome.failed.append(name)
        say(f"failed: {name}: its process ended with code {process.returncode} (see {log_file(job)})")


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
