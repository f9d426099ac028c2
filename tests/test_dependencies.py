"""The ranges of versions in pyproject.toml, the exact versions in constraints.txt, and an import without a warning."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

LOWEST = {"fastapi": "0.132", "pydantic": "2.11", "torch": "2.13", "typer": "0.16"}
"""Below these something breaks: FastAPI reads bodies without a content type as JSON, pydantic lacks a type that options
need, and typer fails to print help with the current click."""


def requirements():
    extras = PROJECT["optional-dependencies"].values()
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    return [Requirement(line) for line in lines if not line.startswith("permalign")]


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [re.split("==", line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_the_version_that_make_installs_lies_in_the_range(requirement):
    assert requirement.specifier.contains(pins()[canonicalize_name(requirement.name)], prereleases=True)


@pytest.mark.parametrize(("name", "version"), LOWEST.items())
def test_ranges_begin_at_a_version_that_works(name, version):
    (specifier,) = [
        part
        for requirement in requirements()
        if requirement.name == name
        for part in requirement.specifier
        if part.operator == ">="
    ]
    assert specifier.version == version


def test_no_package_is_pinned_twice():
    names = [
        line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    ]
    names = [canonicalize_name(name) for name in names if not name.startswith("#")]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("statement", ["import permalign", "import permalign.structures"])
def test_an_import_is_silent(statement):
    command = [sys.executable, "-W", "error", "-c", statement]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
