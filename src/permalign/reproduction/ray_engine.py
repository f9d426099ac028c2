"""Run the cells of a table on the machines of a Ray cluster, through the interface of `permalign.reproduction.grid`.

Every job is a Ray task, which starts the same process as the local engine and waits for it. If the process, its worker
or its machine is killed, Ray starts the task again elsewhere, and the run is resumed from its last checkpoint. All
machines must share the folders of the runs and of the results.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from permalign.errors import PermalignError
from permalign.reproduction.grid import (
    POLL_INTERVAL,
    STOP_TIMEOUT,
    Outcome,
    close,
    log_file,
    record_end,
    sigterm_interrupts,
    start_process,
    stop,
    worker_command,
)
from permalign.reproduction.worker import BUSY, FAILED, INTERRUPTED, Job

RETRIES = 5
"""How often a task whose process or machine was killed is started again."""

BUSY_TIMEOUT = 60.0
"""The number of seconds for which a task waits for a lock that a dying process may still hold."""

VARIABLES = ("PERMALIGN_DATA", "NUMBA_CACHE_DIR")
"""The environment variables that tasks take over from the process that started the grid."""

SEARCH = """
from permalign.reproduction.worker import end_with_parent
end_with_parent()
from permalign.cli import main
main()
"""
"""The program of a task that takes part in a search for options."""


class ProcessKilledError(Exception):
    """The process of a task was killed; Ray starts the task again."""


def run_process(command: Sequence[str], log: str, folder: str, variables: dict[str, str]) -> int:
    """Run a process to its end, in a Ray task; returns its exit code.

    Raises:
        ProcessKilledError: the process was killed by a signal.
    """
    os.environ.update(variables)
    os.chdir(folder)
    # Ray cancels a task by this signal, which it would ignore on a machine where Ray was started in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end = time.monotonic() + BUSY_TIMEOUT
    while True:
        process = start_process(command, Path(log))
        try:
            while (code := process.poll()) is None:  # Ray's interrupt does not end a call that waits
                time.sleep(POLL_INTERVAL)
        except KeyboardInterrupt:  # the task is cancelled
            stop([process])
            return INTERRUPTED
        close(process)
        if code < 0:
            raise ProcessKilledError(f"the process was killed by signal {-code}")
        if code != BUSY or time.monotonic() > end:
            return code
        time.sleep(POLL_INTERVAL)


def connect() -> Any:
    """Connect to the cluster that RAY_ADDRESS names, or else to one on this machine, which is started if needed."""
    try:
        import ray
    except ModuleNotFoundError:
        raise PermalignError('--engine ray needs Ray: pip install "permalign[cluster]".') from None
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, include_dashboard=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise PermalignError(f"Ray cannot be used: {' '.join(str(error).split())[:300]}") from error
    return ray


def submit(ray: Any, command: Sequence[str], log: Path, gpus: float = 0.0) -> Any:
    """Start a process as a Ray task with one core; returns Ray's reference to its exit code."""
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, retry_exceptions=[ProcessKilledError])(
        run_process
    )
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return task.remote(list(command), str(log), os.getcwd(), variables)


def run_jobs_on_ray(
    jobs: Sequence[Job],
    processes: int | None,
    *,
    gpus: float = 0.0,
    minutes: float | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Outcome:
    """Run jobs on a Ray cluster; if one fails, the others continue.

    Args:
        jobs: the jobs, in the order in which they are started.
        processes: the number of jobs that run at the same time; None for as many as the cluster has room for.
        gpus: the number of GPUs for each job, such as 0.25 for four jobs on one GPU.
        minutes: the time limit, after which unfinished runs are saved, so that they can be resumed; None for no limit.
        say: is called with a message whenever a run starts or ends.
    """
    ray, outcome = connect(), Outcome()
    end = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    waiting = [replace(job, runs=job.runs.absolute(), records=job.records.absolute()) for job in jobs]
    active: dict[Any, Job] = {}
    with sigterm_interrupts():
        try:
            while (waiting or active) and time.monotonic() < end:
                while waiting and len(active) < (processes or len(jobs)):
                    job = waiting.pop(0)
                    active[submit(ray, worker_command(job), log_file(job), gpus)] = job
                    say(f"submitted: {job.key.name} ({len(waiting)} waiting)")
                for task in ray.wait(list(active), timeout=POLL_INTERVAL)[0]:
                    record_end(exit_code(ray, task), active.pop(task), outcome, say)
        except KeyboardInterrupt:
            outcome.interrupted = True
        if active:
            say("stopping: saving runs")
            cancel(ray, list(active))
    for task, job in active.items():
        record_end(exit_code(ray, task), job, outcome, say, stopped=True)
    outcome.unfinished += [job.key.name for job in waiting]
    return outcome


def cancel(ray: Any, tasks: list[Any]) -> None:
    """Ask the processes of tasks to save their runs and to end, and wait for them."""
    for task in tasks:
        ray.cancel(task)
    ray.wait(tasks, num_returns=len(tasks), timeout=STOP_TIMEOUT)


def exit_code(ray: Any, task: Any) -> int:
    """The exit code of a task's process; that of a failure if the task was killed more often than it is retried."""
    try:
        return int(ray.get(task, timeout=POLL_INTERVAL))
    except (ray.exceptions.TaskCancelledError, ray.exceptions.GetTimeoutError):
        return INTERRUPTED
    except (ray.exceptions.RayError, ProcessKilledError):
        return FAILED


def run_search_on_ray(
    arguments: Sequence[str],
    folder: Path,
    processes: int | None,
    say: Callable[[str], None] = lambda message: None,
) -> None:
    """Run ``permalign tune`` with the same arguments in several Ray tasks, which share the trials of one study.

    Args:
        arguments: the arguments of the command.
        folder: the folder of the search; the output of each task goes to a log file there.
        processes: the number of tasks; None for one per core of the cluster.
        say: is called with a message whenever a task ends.
    """
    ray = connect()
    count = processes or int(ray.cluster_resources().get("CPU", 1))
    command = [sys.executable, "-c", SEARCH, *arguments]
    logs = [folder.absolute() / "logs" / f"search-{number}.log" for number in range(count)]
    active = {submit(ray, command, log): log for log in logs}
    with sigterm_interrupts():
        try:
            while active:
                for task in ray.wait(list(active), timeout=POLL_INTERVAL)[0]:
                    log, code = active.pop(task), exit_code(ray, task)
                    say(f"a task of the search ended{f' with code {code} (see {log})' if code else ''}")
        except KeyboardInterrupt:
            cancel(ray, list(active))
            raise
