"""Fresh processes: for memory that nothing else has touched, and for two programs at once on one machine.

A job is started with its name and keyword arguments, says ``ready`` when it has loaded everything, waits for a line,
and then answers with one line of JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

from benchmarks.measuring import ROOT, Measurement

Answer = dict[str, float]


class Job:
    """One fresh process, loaded and waiting."""

    def __init__(self, name: str, threads: int | None, arguments: dict[str, object]) -> None:
        environment = dict(os.environ)
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.processes", name, json.dumps(arguments)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.process.stdout.readline() != "ready\n":
            self.answer()

    def start(self) -> None:
        """Let the waiting process begin."""
        print("go", file=self.process.stdin, flush=True)

    def answer(self) -> Answer:
        """Wait for the process to end, and read what it found."""
        answer, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError(
                f"a benchmark's process ended with exit code {self.process.returncode}; its own message is above."
            )
        return json.loads(answer)


def run(name: str, threads: int | None = None, **arguments: object) -> Answer:
    """Start a job, let it run alone, and return its answer."""
    job = Job(name, threads, arguments)
    job.start()
    return job.answer()


def side_by_side(seconds: float = 4.0, **size: int) -> list[Measurement]:
    """Sentences a second of two processes at once, against those of one process with two threads."""

    def throughput(*threads: int) -> float:
        jobs = [Job("throughput", count, {"seconds": seconds, **size}) for count in threads]
        for job in jobs:
            job.start()
        return sum(job.answer()["sentences per second"] for job in jobs)

    one, two, crowded = throughput(2), throughput(1, 1), throughput(2, 2)
    label = f"n={size['words']}, B={size['batch']}"
    details = {"one process, 2 threads: sentences/s": one}
    return [
        Measurement(
            "processes",
            f"{label}: two processes with 1 thread each, throughput against one with 2",
            two / one,
            "x",
            details=details | {"two processes, 1 thread each: sentences/s": two},
        ),
        Measurement(
            "crowded",
            f"{label}: two processes with 2 threads each, throughput against one with 2",
            crowded / one,
            "x",
            details=details | {"two processes, 2 threads each: sentences/s": crowded},
        ),
    ]


def measure_throughput(seconds: float, **size: int) -> Answer:
    """Inside the fresh process: as many passes as fit into the time."""
    from benchmarks.reordering import Problem, Size

    problem, passes = Problem(Size(**size)), 0
    start = perf_counter()
    while (spent := perf_counter() - start) < seconds:
        problem.fast()
        passes += 1
    return {"sentences per second": passes * problem.size.batch / spent}


def jobs() -> dict[str, Callable[..., Answer]]:
    """What a fresh process can be asked to do."""
    from benchmarks import alignment, reordering

    return {
        "throughput": measure_throughput,
        "reordering_memory": reordering.measure_memory,
        "alignment_memory": alignment.measure_memory,
    }


def main(name: str, arguments: str) -> None:
    """Load, say so, wait for the start, work, answer."""
    from permalign import kernels

    job = jobs()[name]
    kernels.warm_up()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(job(**json.loads(arguments))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
