"""Run the cells of a table in several processes; if this is interrupted, it can be resumed.

There is one process with a single thread for each core, because that is faster than one process with several threads
(see `benchmarks.processes`). All cells are run with the first seed before any cell is run with the second one, so that
an interrupted grid has results for all cells rather than all seeds of a few cells.
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
"""The number of seconds that a process may take to save its run after it is asked to stop."""

POLL_INTERVAL = 0.2


@dataclass
class Plan:
    """The runs that a grid still needs.

    Attributes:
        jobs: the runs without results.
        done: for each cell that has results, by its name, the seeds that they are from.
        invalid: for each cell whose options are invalid, by its name, the error message.
    """

    jobs: list[Job] = field(default_factory=list)
    done: dict[str, list[int]] = field(default_factory=dict)
    invalid: dict[str, str] = field(default_factory=dict)

    @property
    def num_done(self) -> int:
        """The number of results, counting every cell and seed."""
        return sum(map(len, self.done.values()))


@dataclass
class Outcome:
    """How the runs of a grid ended.

    Attributes:
        finished: the names of the runs that finished.
        failed: the names of the runs that failed.
        unfinished: the names of the runs that were interrupted, or not started.
        interrupted: whether the grid was stopped by Ctrl-C or SIGTERM.
    """

    finished: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    interrupted: bool = False


def make_plan(
    cells: Sequence[Cell], seeds: Sequence[int], settings: Iterable[str], runs: Path, store: RunStore
) -> Plan:
    """Find the runs that are missing or that lack an evaluation; cells that share a run become one job."""
    plan = Plan()
    settings = tuple(settings)
    records = store.read()
    jobs: dict[str, Job] = {}
    for seed in seeds:
        for cell in cells:
            try:
                key = RunKey.of(cell, seed, settings)
            except PermalignError as error:
                plan.invalid[cell.name] = str(error)
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
    """Run several jobs at a time; if one fails, the others continue.

    Args:
        jobs: the jobs, in the order in which they are started.
        processes: the number of jobs that run at the same time.
        minutes: the time limit, after which unfinished runs are saved, so that they can be resumed; None for no limit.
        say: is called with a message whenever a run starts or ends.
    """
    outcome = Outcome()
    end = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    waiting, active = list(jobs), dict[subprocess.Popen[bytes], Job]()
    with sigterm_interrupts():
        try:
            while (waiting or active) and time.monotonic() < end:
                while waiting and len(active) < processes:
                    job = waiting.pop(0)
                    active[start(job)] = job
                    say(f"started: {job.key.name} ({len(waiting)} waiting)")
                time.sleep(POLL_INTERVAL)
                for process in [process for process in active if process.poll() is not None]:
                    close(process)
                    record_end(process.returncode, active.pop(process), outcome, say)
        except KeyboardInterrupt:
            outcome.interrupted = True
        if active:
            say("stopping: saving runs")
        stop(active)
    for process, job in active.items():
        record_end(process.returncode, job, outcome, say, stopped=True)
    outcome.unfinished += [job.key.name for job in waiting]
    return outcome


def default_processes() -> int:
    """The number of cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)  # does not exist on every system
    return len(usable(0)) if usable else os.cpu_count() or 1


def worker_command(job: Job) -> list[str]:
    """The command that trains and evaluates the run of a job."""
    return [sys.executable, "-m", "permalign.reproduction.worker", job.as_json()]


def start(job: Job) -> "subprocess.Popen[bytes]":
    """Start a process for a job; its output goes to a log file (see `log_file`)."""
    return start_process(worker_command(job), log_file(job))


def start_process(command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """Start a process with one thread; its output is added to a log file.

    The process has its own session, so that Ctrl-C in the terminal does not reach it; `stop` asks it to end instead. It
    reads from a pipe that this process holds open, so that it ends if this process is killed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    with log.open("a", encoding="utf-8") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **one_thread},
            start_new_session=True,
        )


def stop(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    """Ask processes to save their runs and to end, and wait for them; kill those that take too long."""
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
        close(process)


def close(process: "subprocess.Popen[bytes]") -> None:
    """Close our end of the pipe of a process that has ended."""
    assert process.stdin is not None
    process.stdin.close()


def log_file(job: Job) -> Path:
    """The log file of a job's process."""
    return job.runs / "logs" / f"{job.key.name}.log"


def record_end(
    code: int, job: Job, outcome: Outcome, say: Callable[[str], None], stopped: bool = False
) -> None:
    """Note in the outcome how a job's process ended.

    Args:
        code: the exit code of the process.
        job: the job.
        outcome: how the runs of the grid ended so far.
        say: is called with a message.
        stopped: whether the process was asked to end.
    """
    name = job.key.name
    record = RunStore(job.records).find(name)
    if code == 0:
        outcome.finished.append(name)
        say(f"finished: {name}")
    elif record is not None and record.failure is not None:
        outcome.failed.append(name)
        say(f"failed: {name}: {record.failure} (see {log_file(job)})")
    elif stopped or code == BUSY:
        outcome.unfinished.append(name)
        say(f"unfinished: {name}" + (" (another process is working on it)" if code == BUSY else ""))
    else:
        outcome.failed.append(name)
        say(f"failed: {name}: its process ended with code {code} (see {log_file(job)})")


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM, as on Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
