"""A process that runs models: it reads jobs from standard input, and writes their answers to standard output.

It ends when its standard input is closed, that is, when the server has ended, whatever it is computing then.
"""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from permalign.explain.server.worker_messages import READY, Answer, Job

OUT_OF_MEMORY = "the answer takes more memory than a request may use; try a shorter sentence."


def main() -> None:
    """Answer jobs about the runs that the first line of standard input describes."""
    lines = read_lines()
    import torch

    from permalign.explain.server.answers import WorkerSettings, answer_job
    from permalign.explain.server.served_runs import ModelCache

    settings = WorkerSettings.from_line(lines.get())
    torch.set_num_threads(settings.num_threads)
    models = ModelCache(settings.runs)
    limit = partial(limit_memory, settings.limits.max_memory_bytes)

    def answer(job: Job) -> Answer:
        return answer_job(job, models, settings.limits, before=limit)

    with suppress(Exception):  # whatever is compiled or loaded for the first sentence is compiled now
        for operation in ("explain", "compare"):
            answer(Job(operation, {"run": next(iter(settings.runs)), "sentence": "a b c"}))
    answer_jobs(lines, answer)


def read_lines() -> "SimpleQueue[bytes]":
    """Return a queue of the lines of standard input, read by a thread that ends the process after the last one."""
    lines: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os._exit(0)

    Thread(target=read, daemon=True).start()
    return lines


def answer_jobs(lines: "SimpleQueue[bytes]", answer: Callable[[Job], Answer]) -> None:
    """Answer jobs one after the other, until the process ends; a job that fails does not stop the others."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers
    output.write(READY)
    output.flush()
    while True:
        job = Job.from_line(lines.get())
        try:
            result = answer(job)
        except Exception as error:
            result = _failure(error)
        output.write(result.header() + result.body)
        output.flush()


def limit_memory(max_bytes: int) -> None:
    """Let this process allocate at most so much more memory than it has now, where the system can enforce that."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + max_bytes
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def _failure(error: Exception) -> Answer:
    """Return what a client is told about an error that is not its own."""
    # torch has no type of its own for this error
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return Answer.failure(503, OUT_OF_MEMORY)
    traceback.print_exception(error)
    return Answer.failure(500, "the server failed; its own output says why.")
