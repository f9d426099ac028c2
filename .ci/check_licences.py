"""Require that no installed package has a licence that would bind programs which use permalign; for ``make sbom``."""

import re
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

COPYLEFT = re.compile(
    r"\b(A?GPL|GNU (Affero )?General Public|SSPL|BUSL|CC-BY-NC)|Commons Clause|Proprietary", re.IGNORECASE
)
KNOWN = {
    "docutils": "public domain and BSD; GPL only for a file of Emacs Lisp, which is not installed",
}
"""Packages whose licences were read, and why they are no surprise."""


def licence_of(package: Distribution) -> str:
    """The licence that a package declares: an expression, classifiers, or the first line of a text; empty if none."""
    data = package.metadata
    classifiers = [line for line in data.get_all("Classifier", []) if line.startswith("License ::")]
    text = (data["License"] or "").strip().partition("\n")[0]
    return data["License-Expression"] or "; ".join(classifiers) or text


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
