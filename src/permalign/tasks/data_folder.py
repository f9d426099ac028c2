"""Locate the files of datasets.

The data folder has one subfolder per dataset, which holds the upstream files under their own names. It is the argument
``data_dir``, else the environment variable ``PERMALIGN_DATA``, else a folder in the user's cache. `permalign data
fetch` writes to the same folder that everything else reads from.
"""

import os
import sys
from pathlib import Path

from permalign.errors import DataError
from permalign.tasks.download_catalogue import download_of

ENVIRONMENT_VARIABLE = "PERMALIGN_DATA"


def data_root(data_dir: str | Path | None = None) -> Path:
    """The folder with one subfolder per dataset; it need not exist."""
    chosen = data_dir or os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(chosen).expanduser() if chosen else cache_folder() / "data"


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
    """The path of an upstream file, for example ``dataset_file("scan", "tasks_train_simple.txt")``.

    Raises:
        DataError: the file does not exist; the message says where to place it and how to download it.
    """
    path = data_root(data_dir) / folder / name
    if path.is_file():
        return path
    remedy = f"Place {name} there{_or_fetch(folder, name, data_dir)}."
    order = f"--data-dir, else in ${ENVIRONMENT_VARIABLE}, else in {cache_folder() / 'data'}"
    raise DataError(f"there is no such file. {remedy} (Data is looked for in {order}.)", path)


def _or_fetch(folder: str, name: str, data_dir: str | Path | None) -> str:
    download = download_of(folder, name)
    if download is None:
        return ""
    where = f" --data-dir {data_dir}" if data_dir else ""
    return f", or run `permalign data fetch {download.name}{where}`"
