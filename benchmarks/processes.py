"""Fresh processes: for memory that nothing else has touched, and for two programs at once on one machine.

A process is started with a job's name and keyword arguments, says ``ready`` when it has loaded everything, and then
answers every line it reads by doing the job once and writing one line of JSON.
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

Answer = dict[str, float]


class Setting(NamedTuple):
    """Some processes at once: how many threads each has, and what its threads do while they wait."""

    threads: tuple[int, ...]
    wait_policy: str | None = None


SETTINGS = {
    "1 process with 2 threads": Setting((2,)),
    "2 processes with 1 thread each, against 1 with 2": Setting((1, 1)),
    "2 processes with 2 threads each, against 1 with 2": Setting((2, 2)),
    "the same 2, OMP_WAIT_POLICY=PASSIVE": Setting((2, 2), "PASSIVE"),
}


class Job:
    """One fresh process; as a context it ends the process on leaving."""

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
        self.process.communicate()  # no more lines for it: it ends

    def wait_until_ready(self) -> None:
        """Wait until it has loaded everything."""
        self._line()

    def start(self) -> None:
        """Let it do its job once."""
        print("go", file=self.process.stdin, flush=True)

    def answer(self) -> Answer:
        """Wait for what it found."""
        return json.loads(self._line())

    def _line(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise RuntimeError(
                f"a benchmark's process ended with exit code {code}; its own message is above."
            )
        return line


def run(name: str, **arguments: object) -> Answer:
    """Do a job once in a fresh process."""
    with Job(name, arguments) as job:
        job.wait_until_ready()
        job.start()
        return job.answer()


def side_by_side(seconds: float = 1.5, rounds: int = 3, **size: int) -> list[Measurement]:
    """Sentences a second of two processes at once, against those of one process with two threads.

    The settings take turns, and the best round of each counts; who does not have the turn waits for a line.
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
                together = sum(job.answer()["sentences per second"] for job in group)
                best[name] = max(best[name], together)
    (reference, one), *others = best.items()
    return [
        Measurement(
            f"processes-{number}",
            f"n={size['words']}, B={size['batch']}: throughput of {name}",
            throughput / one,
            "x",
            details={f"{reference}: sentences/s": one, f"{name}: sentences/s": throughput},
        )
        for number, (name, throughput) in enumerate(others, 1)
    ]


def _throughput_job(setting: Setting, threads: int, seconds: float, size: dict[str, int]) -> Job:
    environment = {"OMP_NUM_THREADS": str(threads)}
    if setting.wait_policy is not None:
        environment["OMP_WAIT_POLICY"] = setting.wait_policy
    return Job("throughput", {"seconds": seconds, **size}, **environment)


def measure_throughput(seconds: float, **size: int) -> Answer:
    """Inside the fresh process: as many passes as fit into the time."""
    from benchmarks.reordering import Problem, Size

    problem, passes = Problem(Size(**size)), 0
    problem.fast()
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
    """Load, say so, and work whenever told to."""
    from benchmarks.reordering import Problem, Size

    job = jobs()[name]
    Problem(Size(1, 2, 4, 4)).fast()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(job(**json.loads(arguments))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
