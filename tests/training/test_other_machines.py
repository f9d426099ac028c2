"""Seeds reproduce a run exactly, on another machine of the same kind too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.fingerprint import hash_of_weights, kind_of_machine

ROOT = Path(__file__).parents[2]
RECORDED = [
    json.loads(line) for line in (ROOT / "tests" / "data" / "fingerprints.jsonl").read_text().splitlines()
]


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The hash of the weights of a small run in this process."""
    return hash_of_weights(tmp_path_factory.mktemp("here") / "data")


def test_weights_are_those_that_another_machine_of_this_kind_has_recorded(weights):
    kind = kind_of_machine()
    recorded = [line["weights"] for line in RECORDED if {**line, **kind} == line]
    if not recorded:
        pytest.skip(f"no weights were recorded on a machine with {kind}")
    assert recorded == [weights], "if all runs are meant to change: python -m tests.training.fingerprint"


@pytest.mark.parametrize("kernels", ["kept on disk", pytest.param("compiled anew", marks=pytest.mark.slow)])
def test_weights_depend_on_nothing_else_in_which_machines_differ(weights, kernels, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PYTHONHASHSEED": "20",  # the order of sets of strings
        "MALLOC_PERTURB_": "165",  # what is in memory that nobody has written to
        "HOME": str(elsewhere),
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
    }
    if kernels == "compiled anew":
        variables["NUMBA_CACHE_DIR"] = str(elsewhere / "kernels")
    command = [sys.executable, "-m", "tests.training.fingerprint", "data"]
    done = subprocess.run(command, cwd=elsewhere, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"weights": weights, **kind_of_machine()}
