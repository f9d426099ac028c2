"""Measurements in new processes: of peak memory, which nothing else has raised, and of several programs at once.

A process is started with the name of a job and its arguments, and prints ``ready`` once it has loaded everything.
For every line that it then reads, it does the job once and prints the result as one line of JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import NamedTuple

from benchmarks.measuring import ROOT, Measurement

Result = dict[str, float]


class Setting(NamedTuple):
    """Processes that run at once: the number of threads of each, and ``OMP_WAIT_POLICY``."""

    threads: tuple[int, ...]
    wait_policy: str | None = None


SETTINGS = {
    "1 process with 2 threads": Setting((2,)),
    "2 processes with 1 thread each": Setting((1, 1)),
    "2 processes with 2 threads each": Setting((2, 2)),
    "2 processes with 2 threads each and OMP_WAIT_POLICY=PASSIVE": Setting((2, 2), "PASSIVE"),
}


class Job:
    """A new process that does one kind of job; it ends when the context is left."""

    def __init__(self, name: str, arguments: dict[str, object], **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.processes", name, json.dumps(arguments)],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.communicate()  # closes its standard input, so that it ends

    def wait_until_ready(self) -> None:
        """Wait until the process has loaded everything."""
        self._line()

    def start(self) -> None:
        """Start doing the job once."""
        print("go", file=self.process.stdin, flush=True)

    def result(self) -> Result:
        """Wait for the result of the job."""
        return json.loads(self._line())

    def _line(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise RuntimeError(
                f"the process of a benchmark ended with exit code {code}; its error message is printed above."
            )
        return line


def run(name: str, **arguments: object) -> Result:
    """Do a job once in a new process."""
    with Job(name, arguments) as job:
        job.wait_until_ready()
        job.start()
        return job.result()


def compare_settings(seconds: float = 1.5, rounds: int = 3, **size: int) -> list[Measurement]:
    """The throughput of two processes at once, relative to that of one process with two threads.

    The settings take turns, and the best round of each counts. The processes of the other settings wait meanwhile.
    """
    best = dict.fromkeys(SETTINGS, 0.0)
    with ExitStack() as stack:
        groups = {
            name: [
                stack.enter_context(_throughput_job(setting, threads, seconds, size))
                for threads in setting.threads
            ]
            for name, setting in SETTINGS.items()
        }
        for group in groups.values():
            for job in group:
                job.wait_until_ready()
        for _ in range(rounds):
            for name, group in groups.items():
                for job in group:
                    job.start()
                throughput = sum(job.result()["sentences per second"] for job in group)
                best[name] = max(best[name], throughput)
    (reference, reference_throughput), *others = best.items()
    return [
        Measurement(
            f"processes-{number}",
            f"n={size['length']}, B={size['batch']}: throughput of {name}, relative to {reference}",
            throughput / reference_throughput,
            "x",
            details={f"{reference}: sentences/s": reference_throughput, f"{name}: sentences/s": throughput},
        )
        for number, (name, throughput) in enumerate(others, 1)
    ]


def _throughput_job(setting: Setting, threads: int, seconds: float, size: dict[str, int]) -> Job:
    environment = {"OMP_NUM_THREADS": str(threads)}
    if setting.wait_policy is not None:
        environment["OMP_WAIT_POLICY"] = setting.wait_policy
    return Job("throughput", {"seconds": seconds, **size}, **environment)


def measure_throughput(seconds: float, **size: int) -> Result:
    """Do as many passes as fit into a time (a job for a new process)."""
    from benchmarks.reordering import Problem, Size

    problem, passes = Problem(Size(**size)), 0
    problem.fast()
    start = perf_counter()
    while (spent := perf_counter() - start) < seconds:
        problem.fast()
        passes += 1
    return {"sentences per second": passes * problem.size.batch / spent}


def jobs() -> dict[str, Callable[..., Result]]:
    """The jobs that a new process can do, by name."""
    from benchmarks import alignment, labelled, reordering, transduction

    return {
        "throughput": measure_throughput,
        "reordering_memory": reordering.measure_memory,
        "alignment_memory": alignment.measure_memory,
        "labelled_memory": labelled.measure_memory,
        "transduction_memory": transduction.measure_memory,
    }


def main(name: str, arguments: str) -> None:
    """Load everything, print ``ready``, and do the job once for every line of standard input."""
    from benchmarks.reordering import Problem, Size

    job = jobs()[name]
    Problem(Size(1, 2, 4, 4)).fast()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(job(**json.loads(arguments))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
