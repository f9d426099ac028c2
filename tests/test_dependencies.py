"""The ranges of versions in pyproject.toml, the exact versions in constraints.txt, and an import without a warning."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from functools import partial
from importlib import import_module, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

LOWEST = {"datasets": "3.6", "fastapi": "0.132", "pydantic": "2.11", "torch": "2.13", "typer": "0.16"}
"""Below these something breaks: FastAPI reads bodies without a content type as JSON, pydantic lacks a type that options
need, typer fails to print help with the current click, and datasets raises another error where it is offline."""


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


def lowest(*extras, core=()):
    """The lower bounds of what some extras, and perhaps the core, need themselves, except for torch."""
    lines = [*core, *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    needed = [Requirement(line) for line in lines if "permalign" not in line]
    bounds = [(it.name, part.version) for it in needed for part in it.specifier if part.operator == ">="]
    return [f"{name}=={version}" for name, version in bounds if name != "torch"]


LOWEST_OF_ALL = lowest("cli", "models", "training", "tune", "serve", core=PROJECT["dependencies"])

TESTS_OF_EXTRAS = {
    "cluster": "tests/reproduction/test_ray_engine.py",
    "datasets": "tests/tasks/test_user_data.py",
    "hf": "tests/encoders/test_huggingface.py",
    "subwords": "tests/text/test_subwords.py",
}
"""Extras whose lower bounds do not fit those of the others, or that take long to install."""


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


def run(*command, cwd, **options):
    """Run a command that imports permalign from where it is installed; returns what it prints."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def install(environment, *requirements):
    """Install packages into an environment; torch is there."""
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install", "--quiet"]
    run(*pip, f"torch=={pins()['torch']}", *requirements, cwd=environment)


@pytest.mark.slow
@pytest.mark.parametrize("versions", [LOWEST_OF_ALL, []], ids=["lowest", "newest"])
def test_other_versions_train_tune_predict_and_serve(environment, tmp_path, versions):
    python, permalign = environment / "bin" / "python", environment / "bin" / "permalign"
    install(environment, f"{ROOT}[training,tune,serve]", *versions)
    use = partial(run, cwd=tmp_path)
    (tmp_path / "three.csv").write_text("source,target\na b,B A\nb c,C B\nc a,A C\n")
    use(permalign, "train", "three.csv", "--run", "run", "--set", "training.max_steps=2")
    use(permalign, "tune", "three.csv", "--trials", "1", "--out", "search", "--set", "training.max_steps=2")
    use(permalign, "evaluate", "run", "--split", "iid/train")
    use(permalign, "plot", "run", "--out", "curves.png")
    assert use(permalign, "predict", "run", input="a b\n")
    assert "2021" in use(permalign, "explain", "dates", "12 march 2021")
    program = (
        "from pathlib import Path; from permalign.explain.server.application import application;"
        "from permalign.explain.server.limits import Limits;"
        "from permalign.explain.server.served_runs import find_runs;"
        "print(application(find_runs([Path('run')]), Limits()))"
    )
    assert use(python, "-c", program)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["lowest", "newest"])
@pytest.mark.parametrize("extra", TESTS_OF_EXTRAS)
def test_an_extra_passes_its_tests_with_other_versions(environment, extra, end):
    tools = [f"{name}=={pins()[name]}" for name in ("beartype", "hypothesis", "jaxtyping", "pytest")]
    install(
        environment, f"{ROOT}[training,tune,{extra}]", *tools, *(lowest(extra) if end == "lowest" else ())
    )
    pytest_command = [environment / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert " passed" in run(*pytest_command, TESTS_OF_EXTRAS[extra], cwd=ROOT)


def test_every_extra_is_tried_with_other_versions():
    """The others have exact versions only, consist of these, or are for developers, who install exact versions."""
    tried = {"cli", "models", "training", "tune", "serve", *TESTS_OF_EXTRAS}
    others = {"chinese", "translation", "docs", "notebooks", "all", "dev"}
    assert tried | others == PROJECT["optional-dependencies"].keys()


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
