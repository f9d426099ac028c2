"""Trains small runs and kills them at random moments until they are finished, and compares their files."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import yaml
from tests.training.small_run import SILENT, options, remains, write_data

from permalign.training.launch import resume, train
from permalign.training.state import latest_state

SIGNALS = (signal.SIGKILL, signal.SIGTERM)


def results(run: Path) -> tuple[object, ...]:
    """What must not depend on interruptions: the options, and the files of models, checkpoints, records and states.

    Only the spare state before the latest one is left out. Its step depends on where the run was interrupted, and its
    files are read only if the latest state is damaged.
    """
    files, *others = remains(run)
    latest = latest_state(run / "state")
    assert latest is not None
    spare = [name for name in files if name.startswith("state/") and latest.name not in name]
    texts = {
        str(path.relative_to(run)): path.read_bytes()
        for folder in ("model", "checkpoints")
        for path in (run / folder).rglob("*.json")
    }
    chosen = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    return {name: content for name, content in files.items() if name not in spare}, texts, chosen, *others


def begin(run: Path, data: Path) -> int:
    """Train or resume a run in a forked process, whose id is returned."""
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        if (run / "config.yaml").exists():
            resume(run, display=SILENT)
        else:
            train(options(data), run, display=SILENT)
        os._exit(0)
    except SystemExit:
        os._exit(1)
    except BaseException as error:
        os._exit(2 if isinstance(error, Exception) else 1)


def killed_at_random(folder: Path, kills: int, seconds: float, seed: int = 0) -> dict[str, int]:
    """Kill runs at random moments.

    Args:
        folder: an empty folder for the runs.
        kills: how many signals to send.
        seconds: the time limit.
        seed: the seed of the moments and signals.

    Returns:
        The counts of signals, of finished runs, of runs with other files than an uninterrupted one, and of sessions
        that ended by an error.
    """
    draw, data, end = random.Random(seed), write_data(folder), time.monotonic() + seconds
    whole = folder / "whole"
    train(options(data), folder / "warm", display=SILENT)  # imports what all processes need
    started = time.monotonic()
    os.waitpid(begin(whole, data), 0)
    duration, expected = time.monotonic() - started, results(whole)
    counts = {"signals": 0, "runs": 0, "different": 0, "errors": 0}
    while counts["signals"] < kills and time.monotonic() < end:
        run, finished = folder / f"run-{counts['runs']}", False
        for attempt in range(20):
            child = begin(run, data)
            if attempt < 8 and counts["signals"] < kills:
                time.sleep(draw.random() * duration)
                os.kill(child, draw.choice(SIGNALS))
                counts["signals"] += 1
            status = os.waitpid(child, 0)[1]
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 2:
                counts["errors"] += 1
            if status == 0:
                finished = True
                break
        counts["runs"] += 1
        counts["different"] += not finished or results(run) != expected
    return counts


if __name__ == "__main__":
    print(killed_at_random(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
