"""``make trust``: faults, hostile files and load, bounded in time; writes results/trust.md."""

import os

# Nothing here leaves the machine, even if a damaged config names a model of the hub.
os.environ["HF_HUB_OFFLINE"] = "1"

import argparse
import platform
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import torch
from tests.trust.damaged_files import damaged
from tests.trust.hostile_files import READERS, SCRAPS, read_hostile
from tests.trust.load import load
from tests.trust.random_kills import killed_at_random

from permalign import __version__
from permalign.files import write_text

RESULTS = Path(__file__).parents[2] / "results" / "trust.md"


def fuzz(folder: Path, seconds: float) -> tuple[int, int, list[str]]:
    """Give random files to all readers; returns the counts of files and of refusals, and the faults."""
    draw, end, files, refused, faults = Random(0), time.monotonic() + seconds, 0, 0, []
    while time.monotonic() < end:
        pieces = draw.choices(SCRAPS, k=draw.randint(0, 40))
        content = b"".join(piece * draw.choice([1, 1, 1, 2, 1000]) for piece in pieces)[:200_000]
        for reader in READERS:
            files += 1
            try:
                refused += bool(read_hostile(reader, content, folder))
            except Exception as error:
                faults.append(f"{reader}: {type(error).__name__} for {content[:60]!r}")
    return files, refused, faults


def main() -> int:
    """Run all parts; returns 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=12.0, help="the time for all parts")
    parser.add_argument("--kills", type=int, default=200, help="how many signals to send at most")
    parser.add_argument("--connections", type=int, default=200, help="how many connections ask the explorer")
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
        files, refused, faults = fuzz(folder, part / 2)
        print("hostile files:", files, refused, faults[:5], flush=True)
        served = load(folder / "load", arguments.connections, min(part, 120.0))
        print("load:", served, flush=True)
    statuses = served["statuses"]
    assert isinstance(statuses, dict)
    unpromised = {status: count for status, count in statuses.items() if status not in ("200", "429")}
    broken = bool(kills["different"] or kills["errors"] or wrong or faults or unpromised)
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
        f"| hostile files | {files} files for {len(READERS)} readers; {refused} refused, {len(faults)} other errors |",
        f"| load | {served['connections']} connections for {served['seconds']:.0f} s: "
        f"{served['answers a second']} answers a second to sentences of nine words, median {served['median ms']} ms, "
        f"99th percentile {served['99th percentile ms']} ms; answers by status {statuses}; memory of the server "
        f"{' → '.join(map(str, served['memory MB']))} MB |",  # type: ignore[call-overload]
        "",
        *(f"- broken: {line}" for line in [*wrong, *faults[:20]]),
    ]
    write_text(arguments.out, "\n".join(lines).rstrip() + "\n")
    print(f"wrote {arguments.out}")
    return int(broken)


if __name__ == "__main__":
    raise SystemExit(main())
