"""Shapes are checked while tests run, torch keeps to one thread, PERMALIGN_DATA says where the data is."""

import os
import sys
from pathlib import Path

import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # for `tests.structures.contract` and `benchmarks`

# Where tensors have shapes. Not the kernels (what Numba compiles cannot be wrapped) and not the trees, which hold
# no tensors but are made by the thousand.
CHECKED = [
    *(
        f"permalign.structures.{name}"
        for name in (
            "separable",
            "labelled",
            "monotone",
            "segmental",
            "synchronous",
            "labelled_synchronous",
            "distribution",
            "log_space",
            "orders",
            "splits",
            "sinkhorn",
        )
    ),
    "permalign.encoders",
    "permalign.reorderers",
    "permalign.heads",
]
jaxtyping.install_import_hook(CHECKED, "beartype.beartype")

torch.set_num_threads(1)

# No test is timed: a busy machine may take long to draw an example.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(params=["portable", "vectorized", "compiled"])
def backend(request):
    """Run the test on each of the implementations of the recurrences."""
    from permalign import kernels

    with kernels.backend(request.param):
        yield request.param


@pytest.fixture
def unchecked():
    """Switch the checks of shapes off, to see what a user sees who runs without them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def data_dir():
    """The folder with one folder for each dataset; without it a test skips, or fails where data is required."""
    folder = os.environ.get("PERMALIGN_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    reason = "set PERMALIGN_DATA to a folder with the datasets (see `permalign data fetch --help`)"
    if folder or os.environ.get("PERMALIGN_REQUIRE_DATA") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
