"""Every command says in one line which extra to install, if what it needs is missing."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from permalign.cli.error_messages import OPTIONAL_MODULES

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "align dates --file three.csv": "training",
    "average dates scan-sp --out averaged": "training",
    "compare dates scan-sp --split iid/test": "training",
    "data fetch geobase": "training",
    "demo": "training",
    "ensemble dates scan-sp --out both": "training",
    "evaluate dates": "training",
    "explain dates 2021": "cli,models",
    "models": "training",
    "plot dates": "training",
    "predict dates": "training",
    "profile dates": "training",
    "reproduce table2": "training",
    "runs": "training",
    "schema": "training",
    "serve": "serve",
    "train three.csv": "training",
    "train --list": "training",
    "tune dates/exact": "tune",
}
"""Commands, and the extra that each of them needs."""

PROGRAM = """
import json, sys
blocked, commands = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(blocked))  # None: as if it were not installed
from typer.testing import CliRunner
from permalign.cli.app import app
done = {command: CliRunner().invoke(app, command.split()) for command in commands}
print(json.dumps({name: [it.exit_code, it.stderr or repr(it.exception)] for name, it in done.items()}))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The exit code and the message of every command in an environment without optional modules."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "three.csv").write_text("source,target\na b,B A\nb c,C B\nc a,A C\n")
    blocked = OPTIONAL_MODULES - {
        "filelock",
        "pydantic",
        "pydantic_core",
        "rich",
    }  # torch and typer need these
    given = json.dumps([sorted(blocked), sorted(COMMANDS)])
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("command", "extra"), COMMANDS.items())
def test_the_extra_of_a_command_is_named(results, command, extra):
    exit_code, message = results[command]
    assert (exit_code, message.count("\n")) == (1, 1), message
    assert f'pip install "permalign[{extra}]".' in message


def test_the_optional_modules_are_those_of_the_extras():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [line for extra in ("cli", "models", "training", "serve", "tune") for line in extras[extra]]
    names = {Requirement(line).name for line in lines} - {"permalign", "typer"}  # typer: see permalign.cli
    modules = {{"pyyaml": "yaml"}.get(name, name) for name in names}
    assert modules | {"pydantic_core"} == OPTIONAL_MODULES
