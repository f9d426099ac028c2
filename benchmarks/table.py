"""The measurements as tables: in the terminal, between two markers in the README, and in results/speed.md.

``python -m benchmarks.table`` rewrites the tables and the plot of costs from ``results/core.json``.
"""

import json
from pathlib import Path
from typing import Any

from permalign.reproduction.plots import plot_cost

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "core.json"
README = ROOT / "README.md"
SPEED, COST = ROOT / "results" / "speed.md", ROOT / "results" / "cost.png"
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
    """The target of a row, such as ``at least 100x``; empty if there is none."""
    return "" if row["target"] is None else f"{row['goal']} {number(row, 'target')}"


def plain(results: dict[str, Any]) -> str:
    """All rows as text for a terminal."""
    rows = [
        (row["what"], number(row, "measured"), target(row), "" if row["met"] else "MISSED")
        for row in results["measurements"]
    ]
    width = max(len(row[0]) for row in rows)
    lines = [f"{what:<{width}}  {measured:>8}  {goal:<15} {missed}" for what, measured, goal, missed in rows]
    header = f"{'WHAT':<{width}}  {'MEASURED':>8}  TARGET"
    return "\n".join(line.rstrip() for line in [header, *lines])


def markdown(results: dict[str, Any]) -> str:
    """All rows as a Markdown table, with the machine below it."""
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
    """The README with an updated table."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"README.md has no markers for the table of benchmarks. Put it between {BEGIN} and {END}."
        )
    return f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}"


def page(results: dict[str, Any]) -> str:
    """All rows as a page of the results, with a list of missed targets."""
    missed = [
        f"- {row['what']}: {number(row, 'measured')}" for row in results["measurements"] if not row["met"]
    ]
    parts = [
        "# Speed",
        "This page is written by `make bench`. The two sides of a ratio are measured alternately in one run, and their "
        "outputs are checked to be equal. The section *Speed* of the README explains the rows.",
        markdown(results).rstrip(".") + f", on commit `{results['machine']['commit']}`.",
        "## Targets that were missed",
        "\n".join(missed) if missed else "None.",
        f"## Cost by length\n\n![Seconds for one sentence over its length]({COST.name})",
        "The plot shows the time per sentence of a batch for scoring all splits, the inside algorithm and the expected "
        "permutation matrix, forward and backward, for the paper's method as in its authors' code and for ours.",
    ]
    return "\n\n".join(parts) + "\n"


def write_all() -> None:
    """Update the tables and the plot from the saved results."""
    results = json.loads(RESULTS.read_text("utf-8"))
    README.write_text(with_table(README.read_text("utf-8"), results), "utf-8")
    SPEED.write_text(page(results), "utf-8")
    plot_cost(COST, RESULTS)


if __name__ == "__main__":
    write_all()
