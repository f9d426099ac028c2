"""The trail: every run that was ever recorded, with its score on dev and its results on test, in one list."""

from pathlib import Path

from permalign.files import atomic_file
from permalign.reproduction.records import Records, RunRecord

HEAD = """# Every run that was recorded

Also those whose config was given up later: what was tried, what dev said of it, and what came out on test. Models
were chosen by the score on dev. The whole config of each run is in `runs/`, under its name.

| run | command | dev | best on dev | test |
| --- | --- | --- | --- | --- |
"""


def write_trail(records: Records, folder: str | Path) -> Path:
    """Write ``trail.md``; returns its path."""
    names = sorted(path.stem for path in records.folder.glob("*.json"))
    lines = [_line(record) for name in names if (record := records.read(name))]
    path = Path(folder) / "trail.md"
    with atomic_file(path) as file:
        file.write_text(HEAD + "".join(lines), encoding="utf-8")
    return path


def _line(record: RunRecord) -> str:
    dev = record.dev
    tests = [
        f"{key} {test['metrics'][dev['metric']]:.1f}"
        for key, test in record.tests.items()
        if dev.get("metric") in test.get("metrics", {})
    ]
    cells = [
        f"`{record.run}`",
        f"`{record.command}`",
        dev.get("split", ""),
        f"{dev['best']:.1f} {dev['metric']}, step {dev['step']}" if dev else "",
        "; ".join(tests) if record.failure is None else f"failed: {record.failure.replace('|', '/')}",
    ]
    return f"| {' | '.join(cells)} |\n"
