"""Trains a run many times, each time killed (SIGKILL) at another write operation, and resumes it.

Usage: `python -m tests.training.killed_runs DATA FOLDER EVERY`. Prints how many runs were killed, and the operations
after which the result of a killed run differs from that of an uninterrupted one. Processes are forked, so that torch is
imported only once.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from tests.training.small_run import SILENT, options, remains

from permalign.files import PARTIAL
from permalign.training.launch import resume, train

torch.set_num_threads(1)
OPERATIONS = ("replace", "fsync", "rmdir")


def count_operations(limit=None):
    """Count write operations, and kill this process at the operation with number ``limit``."""
    done = 0

    def counting(operation):
        original = getattr(os, operation)

        def counted(*args, **kwargs):
            nonlocal done
            done += 1
            if done == limit:
                truncate(args)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(os, operation, counted)

    for operation in OPERATIONS:
        counting(operation)
    return lambda: done


def truncate(args):
    """Truncate the file that is about to be completed, as if the process had been killed while writing it."""
    path = Path(args[0]) if isinstance(args[0], (str, os.PathLike)) else None
    if path is not None and path.name.endswith(PARTIAL):
        for file in [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def in_child(work):
    """Do work in a child process; returns whether the process ended normally."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"child: {type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    if status not in (0, signal.SIGKILL):
        sys.exit(f"a run ended with status {status}")
    return status == 0


def train_or_resume(run, data):
    if (run / "config.yaml").exists():
        resume(run, display=SILENT)
    else:
        train(options(data), run, display=SILENT)


def main(data, folder, every):
    train(options(data), folder / "warm", display=SILENT)  # imports what all child processes need
    whole = folder / "whole"

    def uninterrupted():
        operations = count_operations()
        train(options(data), whole, display=SILENT)
        (folder / "operations").write_text(str(operations()))

    in_child(uninterrupted)
    operations = int((folder / "operations").read_text())
    expected = remains(whole)
    different = []
    killed_at = range(1, operations + 1, every)
    for operation in killed_at:
        run = folder / f"killed-{operation}"

        def killed(operation=operation, run=run):
            count_operations(operation)
            train_or_resume(run, data)

        if in_child(killed):
            sys.exit(f"the run was not killed at operation {operation}")
        if (run / "metrics.jsonl").exists():
            with (run / "metrics.jsonl").open("a") as file:
                file.write('{"step": 99, "ki')
        in_child(lambda run=run: train_or_resume(run, data))
        if remains(run) != expected:
            different.append(operation)
    print(len(killed_at), different)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
