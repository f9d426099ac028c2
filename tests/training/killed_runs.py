"""Trains one run again and again, each time killed (-9) at another write operation, and resumes it.

Forks, so that torch is loaded once: `python -m tests.training.killed_runs DATA FOLDER EVERY`. Prints how often a run
was killed, and the places where one that was killed there ended differently from one that was not.
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
ACTS = ("replace", "fsync", "rmdir")


def count_acts(limit=None):
    """Count the acts of writing, and be killed in the middle of one."""
    done = 0

    def counting(act):
        original = getattr(os, act)

        def counted(*args, **kwargs):
            nonlocal done
            done += 1
            if done == limit:
                spoil(args)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(os, act, counted)

    for act in ACTS:
        counting(act)
    return lambda: done


def spoil(args):
    """What is about to be made whole is cut to half, as if the kill had come while it was written."""
    path = Path(args[0]) if isinstance(args[0], (str, os.PathLike)) else None
    if path is not None and path.name.endswith(PARTIAL):
        for file in [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def in_child(work):
    """Do work in a process of its own; returns whether it came to its end."""
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


def go_on(run, data):
    if (run / "config.yaml").exists():
        resume(run, display=SILENT)
    else:
        train(options(data), run, display=SILENT)


def main(data, folder, every):
    train(options(data), folder / "warm", display=SILENT)  # loads all that children would load again
    whole = folder / "whole"

    def uninterrupted():
        acts = count_acts()
        train(options(data), whole, display=SILENT)
        (folder / "acts").write_text(str(acts()))

    in_child(uninterrupted)
    acts = int((folder / "acts").read_text())
    expected = remains(whole)
    different = []
    killed_at = range(1, acts + 1, every)
    for act in killed_at:
        run = folder / f"killed-{act}"

        def killed(act=act, run=run):
            count_acts(act)
            go_on(run, data)

        if in_child(killed):
            sys.exit(f"the run was not killed at act {act}")
        if (run / "metrics.jsonl").exists():
            with (run / "metrics.jsonl").open("a") as file:
                file.write('{"step": 99, "ki')
        in_child(lambda run=run: go_on(run, data))
        if remains(run) != expected:
            different.append(act)
    print(len(killed_at), different)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
