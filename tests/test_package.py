"""The wheel and the sdist that `python -m build` makes: complete, and usable in an environment without the sources."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import permalign

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

NOT_IN_SDIST = (".github/", ".pre-commit-config.yaml")
"""What only the repository needs."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Runs commands in an environment in which the wheel is installed, and which borrows its dependencies."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (wheel,) = built.glob("*.whl")
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, wheel], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments, program="permalign", cwd=home):
        command = [home / "bin" / program, *map(str, arguments)]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)

    return run


def test_the_sdist_has_what_tests_and_docs_need(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True)
    tracked = {name for name in listed.stdout.splitlines() if not name.startswith(NOT_IN_SDIST)}
    assert names == tracked | {"PKG-INFO"}


def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run([*pip, "--wheel-dir", tmp_path, sdist], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / wheel.name) == contents(wheel)


def contents(wheel):
    """The files of a wheel, with their checksums."""
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: info.CRC for info in archive.infolist()}


def test_the_wheel_has_every_file_of_the_package(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"permalign-{permalign.__version__}-py3-none-any.whl"
    metadata = f"permalign-{permalign.__version__}.dist-info"
    names = set(contents(wheel))
    packed = {name for name in names if name.startswith("permalign/")}
    files = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    assert names - packed == {f"{metadata}/{name}" for name in files}
    assert {
        "permalign/py.typed",
        "permalign/recipes/exact.yaml",
        "permalign/tasks/splits/geoquery.json",
    } <= packed
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "src/permalign"], capture_output=True, text=True, check=True
    )
    assert packed == {name.removeprefix("src/") for name in tracked.stdout.splitlines()}


def test_the_installed_command_trains_and_predicts(installed, tmp_path):
    done = installed("--version")
    assert (done.returncode, done.stdout) == (0, f"{permalign.__version__}\n"), done.stderr
    done = installed("-c", "import permalign; print(permalign.__file__)", program="python")
    assert "environment" in done.stdout
    (tmp_path / "three.csv").write_text("source,target\na b,B A\nb c,C B\nc a,A C\n")
    train = ["train", "three.csv", "--run", "run", "--set", "training.max_steps=2"]
    done = installed(*train, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = installed("explain", "run", "a b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = installed("explain", "dates", "12 march 2021", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2021" in done.stdout


def test_extras_that_messages_name_exist():
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        for group in re.findall(r"permalign\[([a-z,]+)\]", path.read_text("utf-8")):
            named |= set(group.split(","))
    known = set(re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE))
    assert named <= known


@pytest.mark.parametrize(
    ("changelog", "complaint"),
    [
        ("## [0.1.0] - 2027-01-02\n", ""),
        (
            "## [0.1.0] - unreleased\n",
            'Replace "unreleased" by the date: "## [0.1.0] - YYYY-MM-DD" in CHANGELOG.md.',
        ),
        (
            "## [0.0.9] - 2027-01-02\n",
            "(src/permalign/__init__.py: 0.1.0; CHANGELOG.md: 0.0.9; CITATION.cff: 0.1.0)",
        ),
    ],
)
def test_a_release_is_checked_for_one_version_and_a_date(changelog, complaint, tmp_path):
    for name, text in {
        "src/permalign/__init__.py": '__version__ = "0.1.0"\n',
        "CITATION.cff": "version: 0.1.0\n",
        "CHANGELOG.md": changelog,
        ".ci/check_version.py": (ROOT / ".ci/check_version.py").read_text("utf-8"),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    answer = subprocess.run(
        [sys.executable, tmp_path / ".ci/check_version.py"], capture_output=True, text=True, check=False
    )
    assert answer.returncode == bool(complaint)
    assert complaint in answer.stderr
    assert answer.stderr.count("\n") == bool(complaint)
