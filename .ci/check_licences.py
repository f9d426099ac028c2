"""Require that no installed package has a licence that would bind programs which use permalign; for ``make sbom``.

``python .ci/check_licences.py FILE`` also writes a table of the licences of all pinned versions to the file.
"""

import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"

COPYLEFT = re.compile(
    r"\b(A?GPL|GNU (Affero )?General Public|SSPL|BUSL|CC-BY-NC)|Commons Clause|Proprietary", re.IGNORECASE
)
KNOWN = {
    "atheris": "Apache-2.0, according to its licence file",
    "docutils": "public domain and BSD; GPL only for a file of Emacs Lisp, which is not installed",
}
"""Packages whose licences were read, and why they are no surprise."""


def licence_of(package: Distribution) -> str:
    """The licence that a package declares: an expression, classifiers, or the first line of a text; empty if none."""
    data = package.metadata
    classifiers = [line for line in data.get_all("Classifier", []) if line.startswith("License ::")]
    text = (data["License"] or "").strip().partition("\n")[0]
    return data["License-Expression"] or "; ".join(classifiers) or text


def pinned_versions(constraints: Path = CONSTRAINTS) -> dict[str, str]:
    """The versions in constraints.txt by name; a marker for some machines only comes after a semicolon."""
    lines = (line.split(";")[0].strip() for line in constraints.read_text("utf-8").splitlines())
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def licence_table() -> str:
    """A table of the pinned versions and the licences that they declare, all of which have to be installed."""
    rows = []
    for name, version in sorted(pinned_versions().items(), key=lambda pin: pin[0].lower()):
        package = distribution(name)
        if package.version.partition("+")[0] != version:
            sys.exit(
                f"{name} {package.version} is installed, but constraints.txt has {version}. Run make again."
            )
        parts = licence_of(package).replace("License :: OSI Approved :: ", "").replace("License :: ", "")
        rows.append(f"| {name} | {version} | {parts or KNOWN[name]} |")
    lines = [
        "# Licences of dependencies",
        "",
        "What the pinned versions of `constraints.txt` declare, those for development included. `make sbom` writes",
        "this page. permalign itself is licensed under Apache-2.0.",
        "",
        "| package | version | licence |",
        "|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def surprising_licences(packages: Iterable[Distribution]) -> list[str]:
    """The packages that declare no licence, or one that binds programs which use them."""
    found = {package.metadata["Name"]: licence_of(package) for package in packages}
    return [
        f"{name}: {licence or 'declares no licence'}"
        for name, licence in sorted(found.items())
        if name not in KNOWN and (not licence or COPYLEFT.search(licence))
    ]


if __name__ == "__main__":
    if surprises := surprising_licences(distributions()):
        sys.exit("Read these licences, and remove the package or add it to KNOWN:\n" + "\n".join(surprises))
    for name in sys.argv[1:]:
        Path(name).write_text(licence_table(), encoding="utf-8")
