"""The ranges of versions in pyproject.toml, the exact versions in constraints.txt, and an import without a warning."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib import import_module, metadata
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
    """The pinned versions; a marker for some machines only comes after a semicolon."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split(";")[0].split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version.strip() for name, version in pairs}


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


def test_everything_that_make_installs_is_pinned():
    """Follows the requirements of all installed packages, as far as their markers apply here."""
    pinned, reached = pins(), set()
    waiting = [(canonicalize_name(requirement.name), requirement.extras) for requirement in requirements()]
    while waiting:
        name, extras = waiting.pop()
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # an extra that is not installed
        reached.add(name)
        for requirement in map(Requirement, lines):
            applies = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in (extras or {""})
            )
            if applies and canonicalize_name(requirement.name) not in reached:
                waiting.append((canonicalize_name(requirement.name), requirement.extras))
    assert reached <= pinned.keys()


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


def test_the_lock_has_the_versions_of_the_constraints_and_their_hashes():
    lines = (ROOT / "constraints.lock").read_text()
    locked = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)(?: ;.*)? \\\n    --hash=sha256:", lines, re.MULTILINE)
    assert {canonicalize_name(name): version for name, version in locked} == {
        name: version for name, version in pins().items() if name != "torch"
    }
    assert "://" not in lines


def test_the_list_of_licences_has_the_versions_of_the_constraints():
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (.+) \|$", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE
    )
    assert {canonicalize_name(name): version for name, version, _ in rows if name != "package"} == pins()


def lowest():
    """The lower bounds of what the core and the extras training, tune and serve need, except for torch."""
    extras = PROJECT["optional-dependencies"]
    lines = [line for extra in ("cli", "models", "training", "tune", "serve") for line in extras[extra]]
    needed = [Requirement(line) for line in [*PROJECT["dependencies"], *lines] if "permalign" not in line]
    bounds = [(it.name, part.version) for it in needed for part in it.specifier if part.operator == ">="]
    return [f"{name}=={version}" for name, version in bounds if name != "torch"]


@pytest.fixture
def environment(tmp_path):
    """An empty environment that borrows nothing but torch; skips, and says why, if nothing can be installed."""
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path, "iniconfig"]
    done = subprocess.run(probe, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["pip does not say why"])[-1]
        pytest.skip(f"no other versions were tried, because pip can download nothing: {why}")
    home, borrowed = tmp_path / "environment", tmp_path / "borrowed"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    borrowed.mkdir()
    for pattern in ("torch", "torchgen", "functorch", "torch-*.dist-info"):
        for path in Path(sysconfig.get_paths()["purelib"]).glob(pattern):
            (borrowed / path.name).symlink_to(path)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    return home


@pytest.mark.slow
@pytest.mark.parametrize("versions", [lowest(), []], ids=["lowest", "newest"])
def test_other_versions_train_tune_predict_and_serve(environment, tmp_path, versions):
    def run(*command, **options):
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    python, permalign = environment / "bin" / "python", environment / "bin" / "permalign"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", f"torch=={pins()['torch']}"]
    run(*pip, f"{ROOT}[training,tune,serve]", *versions)
    (tmp_path / "three.csv").write_text("source,target\na b,B A\nb c,C B\nc a,A C\n")
    run(permalign, "train", "three.csv", "--run", "run", "--set", "training.max_steps=2")
    run(permalign, "tune", "three.csv", "--trials", "1", "--out", "search", "--set", "training.max_steps=2")
    run(permalign, "evaluate", "run", "--split", "iid/train")
    run(permalign, "plot", "run", "--out", "curves.png")
    assert run(permalign, "predict", "run", input="a b\n")
    assert "2021" in run(permalign, "explain", "dates", "12 march 2021")
    program = (
        "from pathlib import Path; from permalign.explain.server.application import application;"
        "from permalign.explain.server.limits import Limits;"
        "from permalign.explain.server.served_runs import find_runs;"
        "print(application(find_runs([Path('run')]), Limits()))"
    )
    assert run(python, "-c", program)


@pytest.mark.parametrize(
    ("package", "name", "home", "extra"),
    [
        ("permalign", "load_model", "permalign.models.build_model", "models"),
        ("permalign.training", "train", "permalign.training.launch", "training"),
    ],
)
def test_an_import_without_its_extra_names_it(package, name, home, extra, monkeypatch):
    def find(module):
        assert module == home
        raise ModuleNotFoundError("No module named 'missing'", name="missing.part")

    public = import_module(package)
    monkeypatch.setattr(public, "import_module", find)
    message = rf'^{package}\.{name} needs missing: pip install "permalign\[{extra}\]"$'
    with pytest.raises(ImportError, match=message):
        getattr(public, name)
