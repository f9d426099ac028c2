"""``make trust``: faults, hostile files and load, bounded in time; writes results/trust.md."""

import os

# Nothing here leaves the machine, even if a damaged config names a model of the hub.
os.environ["HF_HUB_OFFLINE"] = "1"

import argparse
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import torch
from tests.trust.damaged_files import damaged
from tests.trust.fuzz import fuzz
from tests.trust.hostile_files import READERS
from tests.trust.load import interrupted, load
from tests.trust.other_faults import other_faults
from tests.trust.random_kills import killed_at_random

from permalign import __version__
from permalign.files import write_text

MIN_ANSWERS_A_SECOND = 50.0
"""How many sentences of nine words two cores with nothing else to do answer every second, with 100 connections."""

RESULTS = Path(__file__).parents[2] / "results" / "trust.md"


def main() -> int:
    """Run all parts; returns 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=12.0, help="the time for all parts")
    parser.add_argument("--kills", type=int, default=200, help="how many signals to send at most")
    parser.add_argument(
        "--connections",
        type=int,
        default=200,
        help="how many connections ask the explorer, and then half as many",
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    part = 60 * arguments.minutes / 4
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kills = killed_at_random(folder / "kills", arguments.kills, part)
        print("kills:", kills, flush=True)
        damages, wrong = damaged(folder / "damage", part)
        print("damage:", damages, wrong, flush=True)
        others = other_faults(folder / "faults", min(part, 90.0))
        print("other faults:", others.counts, others.wrong, others.skipped, flush=True)
        fuzzed = [fuzz(reader, part / len(READERS)) for reader in READERS]
        files, faults = sum(count for count, _ in fuzzed), [fault for _, fault in fuzzed if fault]
        print("hostile files:", files, faults, flush=True)
    many = load(arguments.connections, min(2 * part / 3, 120.0))
    print("load:", many, flush=True)
    fewer = load(arguments.connections // 2, min(part / 3, 60.0))
    print("load:", fewer, flush=True)
    end = interrupted()
    print("Ctrl-C:", end, flush=True)
    overloaded = [*many.faults(), *fewer.faults(MIN_ANSWERS_A_SECOND), *end.faults()]
    broken = [*wrong, *others.wrong, *faults, *overloaded]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f} at the end"
    lines = [
        "# Faults, hostile files and load",
        "",
        f"Written by `make trust` on {datetime.now(UTC):%Y-%m-%d} with permalign {__version__}, Python "
        f"{platform.python_version()}, torch {torch.__version__}; {machine}. docs/trust.md says what is promised.",
        "",
        "| part | figures |",
        "|---|---|",
        f"| random kills | {kills['signals']} signals (SIGKILL, SIGTERM) in {kills['runs']} runs; "
        f"{kills['different']} with other files than an uninterrupted run, {kills['errors']} sessions with an error |",
        f"| damaged files | {damages['damages']} damages of the files of a run; {damages['same']} resumed to the same "
        f"bytes, {damages['refused']} refused in one line, {len(wrong)} anything else |",
        f"| other faults | {others.counts['faults']} runs on a full disk, in a read-only folder, in a folder that was "
        f"removed, and with a second process; {others.counts['same']} stopped in one line or not at all and ended in "
        f"the same bytes, {others.counts['refused']} refused in one line, {len(others.wrong)} anything else"
        f"{''.join(f'; not tried: {reason}' for reason in others.skipped)} |",
        f"| hostile files | {files} files for {len(READERS)} readers, guided by coverage (atheris); {len(faults)} "
        "readers with an error that is no refusal, a hang or more than 3 GB |",
        f"| load | {many} |",
        f"| load | {fewer} |",
        f"| Ctrl-C | {end} |",
        "",
        *(f"- broken: {line}" for line in broken),
    ]
    write_text(arguments.out, "\n".join(lines).rstrip() + "\n")
    print(f"wrote {arguments.out}")
    return int(bool(broken or kills["different"] or kills["errors"]))


if __name__ == "__main__":
    raise SystemExit(main())
