"""Download datasets, through pooch.

A file is downloaded under a temporary name, and gets its own after its checksum is verified, so that incomplete files
are never read.
"""

import logging
import stat
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from permalign import __version__
from permalign.errors import DataError, PermalignError, UsageError, unknown_name
from permalign.tasks.data_folder import data_root
from permalign.tasks.download_catalogue import DOWNLOADS, Download, RemoteFile

Progress = Callable[[RemoteFile, int], None]
"""Called with a file and the number of its bytes downloaded so far."""

TIMEOUT = 30.0
"""The number of seconds without any data after which a connection counts as stalled."""

ATTEMPTS = 4
"""How often a file is tried; the pauses between attempts are 1, 2 and 3 seconds."""

_CHUNK = 1 << 16
_HEADERS = {"User-Agent": f"permalign/{__version__}", "Accept-Encoding": "identity"}
_PERMANENT_ERRORS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


def find_download(name: str) -> Download:
    """Find a download by its name; an unknown name raises a `UsageError` that suggests the nearest one."""
    for download in DOWNLOADS:
        if download.name == name:
            return download
    raise UsageError(unknown_name("download", name, [download.name for download in DOWNLOADS]))


def fetch(
    download: Download, data_dir: str | Path | None = None, *, progress: Progress | None = None
) -> list[Path]:
    """Download all files of a dataset to the data folder; returns their paths. Existing files are only verified.

    Args:
        download: the dataset.
        data_dir: the data folder; None for the default.
        progress: is called with the number of bytes received so far.

    Raises:
        PermalignError: a file cannot be downloaded, or a different file with the same name exists. The message says
            where to place the file.
    """
    folder = data_root(data_dir) / download.folder
    return [_fetch_file(file, folder / file.name, progress or _no_progress) for file in download.files]


def _fetch_file(file: RemoteFile, path: Path, progress: Progress) -> Path:
    """Download a file to ``path``; if it exists, only verify its checksum, and never replace it."""
    import pooch

    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _download(file, path, progress)
        elif not path.is_file() or pooch.file_hash(str(path)) != file.sha256:
            raise DataError(
                "exists, but is not the expected file (its checksum differs). Remove it, and download again.",
                path,
            )
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot be read or written ({reason}).", error.filename or path) from error
    progress(file, file.size)
    return path


def _download(file: RemoteFile, path: Path, progress: Progress) -> None:
    import pooch
    from requests import RequestException

    def download(url: str, output_file: str, caller: Any) -> None:
        try:
            _receive(file, output_file, progress)
        except RequestException as error:
            if error.response is not None and error.response.status_code in _PERMANENT_ERRORS:
                raise _download_error(file, path, error) from None  # pooch does not try again
            raise

    pooch.get_logger().setLevel(logging.ERROR)
    registry, urls = {path.name: f"sha256:{file.sha256}"}, {path.name: file.url}
    files = pooch.create(path.parent, "", registry=registry, urls=urls, retry_if_failed=ATTEMPTS - 1)
    try:
        files.fetch(path.name, downloader=download)
    except (RequestException, ValueError) as error:
        raise _download_error(file, path, error) from error
    readable = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH
    path.chmod(stat.S_IMODE(path.parent.stat().st_mode) & readable)  # pooch lets nobody else read its files


def _receive(file: RemoteFile, output_file: str, progress: Progress) -> None:
    """Write what the server sends to ``output_file``, and close the connection, whatever happens (pooch does not)."""
    import requests

    received = 0
    progress(file, received)
    with requests.get(file.url, headers=_HEADERS, timeout=TIMEOUT, stream=True) as response:
        response.raise_for_status()
        with Path(output_file).open("wb") as output:
            for chunk in response.iter_content(_CHUNK):
                received += len(chunk)
                if received > file.size:  # some servers never end
                    raise ValueError(f"the file has more than the expected {file.size:,} bytes")
                output.write(chunk)
                progress(file, received)


def _download_error(file: RemoteFile, path: Path, error: BaseException) -> PermalignError:
    return PermalignError(
        f"could not download {file.url}: {_describe(error)}. Try again later, or get the file from elsewhere (sha256 "
        f"{file.sha256}) and place it at {path}"
    )


def _describe(error: BaseException) -> str:
    """The answer of the server, or the innermost cause of an error, without the names of the libraries around it."""
    from requests import RequestException

    if not isinstance(error, RequestException):
        return "the server's file is not the expected one (its checksum differs)"
    if error.response is not None and not error.response.ok:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return " ".join((str(cause) or type(cause).__name__).split()).rstrip(".")


def _no_progress(file: RemoteFile, received: int) -> None:
    """Do not report the progress."""
