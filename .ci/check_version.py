"""Require that the package, the changelog and the citation name the same version; part of ``make release-check``."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {
    "src/permalign/__init__.py": r'^__version__ = "(.+)"$',
    "CHANGELOG.md": r"^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$",  # the latest release; one without a date is not released
    "CITATION.cff": r"^version: (.+)$",
}


def find_versions(root: Path = ROOT) -> dict[str, str]:
    """The version that each file names; empty if it names none."""
    found = {}
    for name, pattern in PLACES.items():
        match = re.search(pattern, (root / name).read_text("utf-8"), re.MULTILINE)
        found[name] = match[1] if match else ""
    return found


def complaint(versions: dict[str, str]) -> str | None:
    """What is wrong with the versions, and what to do about it; None if nothing is."""
    if len(set(versions.values())) == 1:
        return None
    described = "; ".join(
        f"{name}: {version or 'no release with a date'}" for name, version in versions.items()
    )
    advice = (
        ""
        if versions["CHANGELOG.md"]
        else f' Replace "unreleased" by the date: "## [{versions["CITATION.cff"]}] - YYYY-MM-DD" in CHANGELOG.md.'
    )
    return f"These must name the same version ({described}).{advice}"


if __name__ == "__main__":
    sys.exit(complaint(find_versions()))
