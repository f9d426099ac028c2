"""Damages every file of a finished run in several ways, and sees whether the run is resumed or refused."""

import shutil
import time
from pathlib import Path

from tests.training.small_run import SILENT, options, write_data
from tests.training.test_damage import DAMAGES
from tests.trust.random_kills import results

from permalign.errors import PermalignError
from permalign.training.launch import resume, train

DERIVED = ("events", ".lock", "environment.json")
"""What no result depends on."""


def damaged(folder: Path, seconds: float) -> tuple[dict[str, int], list[str]]:
    """Damage one file at a time.

    Returns:
        The counts of damages, of runs resumed to the same files and of refusals in one line; and the cases that ended
        in any other way.
    """
    whole = folder / "whole"
    train(options(write_data(folder)), whole, display=SILENT)
    best = (whole / "model" / "model.safetensors").read_bytes()
    expected, end = results(whole), time.monotonic() + seconds
    counts, wrong = {"damages": 0, "same": 0, "refused": 0}, []
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    cases = [(name, damage) for damage in DAMAGES for name in names if name.parts[0] not in DERIVED]
    for name, damage in cases:
        if time.monotonic() > end:
            break
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole, run)
        content = (run / name).read_bytes()
        (run / name).write_bytes(DAMAGES[damage](content))
        counts["damages"] += 1
        try:
            resume(run, display=SILENT)
        except PermalignError as error:
            kept = (run / "model" / "model.safetensors").read_bytes()
            one_line = len(str(error).splitlines()) == 1
            intact = name == Path("model/model.safetensors") or kept == best
            if one_line and intact:
                counts["refused"] += 1
                continue
            wrong.append(f"{name}, {damage}: {error}")
        except Exception as error:
            wrong.append(f"{name}, {damage}: {error!r}")
        else:
            if results(run) == expected:
                counts["same"] += 1
            else:
                wrong.append(f"{name}, {damage}: other files than those of the whole run")
    return counts, wrong
