"""Locate the files of datasets.

The data folder has one subfolder per dataset, which contains the upstream files under their original names. It is given
by the argument ``data_dir`` or, without it, by the environment variable ``PERMALIGN_DATA``; the default is a folder in
the user's cache. `permalign data fetch` writes to the folder from which all other commands read.
"""

import os
import sys
from pathlib import Path

from permalign.errors import DataError
from permalign.tasks.download_catalogue import download_of

ENVIRONMENT_VARIABLE = "PERMALIGN_DATA"


def data_root(data_dir: str | Path | None = None) -> Path:
    """The data folder, with one subfolder per dataset; it need not exist."""
    folder = data_dir or os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(folder).expanduser() if folder else cache_folder() / "data"


def cache_folder() -> Path:
    """The user's cache folder for permalign, by the convention of the operating system."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "permalign"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "permalign"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "permalign"


def dataset_file(folder: str, name: str, data_dir: str | Path | None = None) -> Path:
    """The path of a file of a dataset, for example ``dataset_file("scan", "tasks_train_simple.txt")``.

    Raises:
        DataError: the file does not exist; the message says where to place it and how to download it.
    """
    path = data_root(data_dir) / folder / name
    if path.is_file():
        return path
    advice = f"Place {name} there{_download_advice(folder, name, data_dir)}."
    searched = f"--data-dir, else in ${ENVIRONMENT_VARIABLE}, else in {cache_folder() / 'data'}"
    raise DataError(f"there is no such file. {advice} (Data is looked for in {searched}.)", path)


def _download_advice(folder: str, name: str, data_dir: str | Path | None) -> str:
    download = download_of(folder, name)
    if download is None:
        return ""
    option = f" --data-dir {data_dir}" if data_dir else ""
    return f", or run `permalign data fetch {download.name}{option}`"
