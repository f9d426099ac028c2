"""The measurements as tables: in the terminal, and in the README between its markers.

``python -m benchmarks.table`` writes the README's table anew from ``results/core.json``.
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "core.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- bench -->", "<!-- /bench -->"


def number(row: dict[str, Any], key: str) -> str:
    """A number with its unit: ``112x``, ``0.08x``, ``1.4 GB``.

    >>> number({"measured": 112.4, "unit": "x"}, "measured"), number({"target": 4.0, "unit": "GB"}, "target")
    ('112x', '4 GB')
    """
    value, unit = row[key], row["unit"]
    digits = f"{value:,.0f}" if value >= 20 else f"{value:.2g}"
    return digits + (unit if unit == "x" else f" {unit}")


def target(row: dict[str, Any]) -> str:
    """What the number is meant to reach."""
    return "" if row["target"] is None else f"{row['goal']} {number(row, 'target')}"


def plain(results: dict[str, Any]) -> str:
    """All rows for the terminal."""
    rows = [
        (row["what"], number(row, "measured"), target(row), "" if row["met"] else "MISSED")
        for row in results["measurements"]
    ]
    wide = max(len(row[0]) for row in rows)
    lines = [f"{what:<{wide}}  {measured:>8}  {goal:<15} {missed}" for what, measured, goal, missed in rows]
    head = f"{'WHAT':<{wide}}  {'MEASURED':>8}  TARGET"
    return "\n".join(line.rstrip() for line in [head, *lines])


def markdown(results: dict[str, Any]) -> str:
    """All rows for the README, and the machine below them."""
    machine = results["machine"]
    lines = ["| what | measured | target |", "|---|---:|---|"]
    lines += [
        f"| {row['what']} | {number(row, 'measured')} | {target(row)} |" for row in results["measurements"]
    ]
    lines += [
        "",
        f"Measured {machine['date']} on {machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, "
        f"torch {machine['torch']}, numba {machine['numba']}, by `make bench`.",
    ]
    return "\n".join(lines)


def with_table(readme: str, results: dict[str, Any]) -> str:
    """The README with its table written anew."""
    before, found, rest = readme.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"README.md has lost its markers: the table stands between {BEGIN} and {END}.")
    return f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}"


def write_readme() -> None:
    """Bring the README's table up to date with the results."""
    README.write_text(with_table(README.read_text("utf-8"), json.loads(RESULTS.read_text("utf-8"))), "utf-8")


if __name__ == "__main__":
    write_readme()
