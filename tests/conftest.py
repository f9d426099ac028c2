import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir():
    """The folder with one folder for each dataset; without it a test skips, and fails in CI."""
    folder = os.environ.get("PERMALIGN_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    reason = "set PERMALIGN_DATA to a folder with the datasets (see `permalign data fetch --help`)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
