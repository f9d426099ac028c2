"""Download datasets.

A file is downloaded under a name that ends in ``.part``, and renamed after its checksum is verified, so that incomplete
files are never read. An interrupted download is resumed where it stopped.
"""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from permalign import __version__
from permalign.errors import DataError, PermalignError, UsageError, unknown_name
from permalign.tasks.data_folder import data_root
from permalign.tasks.download_catalogue import DOWNLOADS, Download, RemoteFile

Progress = Callable[[RemoteFile, int], None]
"""Called with a file and the number of its bytes downloaded so far."""

_CHUNK = 1 << 16
_PERMANENT_ERRORS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try a download, and how long to wait.

    Attributes:
        timeout: the number of seconds without any data after which a connection counts as stalled.
        attempts: the number of attempts, at least 1.
        pause: the number of seconds before the second attempt; it doubles with every further attempt.
    """

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 0.5


class _AttemptFailedError(Exception):
    """An attempt to download a file failed; another one may succeed unless the failure is ``final``."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class _RangeRefusedError(_AttemptFailedError):
    """The server's file is smaller than the part downloaded before, which must belong to another file."""


def find_download(name: str) -> Download:
    """Find a download by its name; an unknown name raises a `UsageError` that suggests the nearest one."""
    for download in DOWNLOADS:
        if download.name == name:
            return download
    raise UsageError(unknown_name("download", name, [download.name for download in DOWNLOADS]))


def fetch(
    download: Download,
    data_dir: str | Path | None = None,
    *,
    progress: Progress | None = None,
    retries: RetryPolicy | None = None,
) -> list[Path]:
    """Download all files of a dataset to the data folder; returns their paths. Existing files are only verified.

    Args:
        download: the dataset.
        data_dir: the data folder; None for the default.
        progress: is called with the number of bytes received so far.
        retries: timeouts and the number of attempts; None for the defaults.

    Raises:
        PermalignError: a file cannot be downloaded, or a different file with the same name exists. The message says
            where to place the file.
    """
    folder = data_root(data_dir) / download.folder
    return [
        fetch_file(file, folder / file.name, progress or _no_progress, retries or RetryPolicy())
        for file in download.files
    ]


def fetch_file(file: RemoteFile, path: Path, progress: Progress, retries: RetryPolicy) -> Path:
    """Download a file to ``path``; if it exists, only verify its checksum."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _download_with_retries(file, path, progress, retries)
        elif not path.is_file() or _sha256(path) != file.sha256:
            raise DataError(
                "exists, but is not the expected file (its checksum differs). Remove it, and download again.",
                path,
            )
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot be read or written ({reason}).", error.filename or path) from error
    progress(file, file.size)
    return path


def _download_with_retries(file: RemoteFile, path: Path, progress: Progress, retries: RetryPolicy) -> None:
    part = path.with_name(path.name + ".part")
    for attempt in range(1, retries.attempts + 1):
        try:
            _finish_download(file, part, progress, retries.timeout)
        except _AttemptFailedError as failure:
            if failure.final or attempt == retries.attempts:
                raise _download_error(file, path, str(failure)) from None
            time.sleep(retries.pause * 2 ** (attempt - 1))
        else:
            os.replace(part, path)
            return


def _finish_download(file: RemoteFile, part: Path, progress: Progress, timeout: float) -> None:
    """Download the missing bytes of a file, and verify its checksum."""
    received = part.stat().st_size if part.exists() else 0
    if received > file.size:
        part.unlink()
        received = 0
    if received < file.size:
        try:
            received = _download(file, part, received, progress, timeout)
        except _RangeRefusedError:
            part.unlink(missing_ok=True)
            raise
    if received < file.size:
        raise _AttemptFailedError(f"the connection ended after {received:,} of {file.size:,} bytes")
    if received > file.size or _sha256(part) != file.sha256:
        part.unlink()
        raise _AttemptFailedError("the server's file is not the expected one (its checksum differs)")


def _download(file: RemoteFile, part: Path, received: int, progress: Progress, timeout: float) -> int:
    """Append what the server sends to the partial file; returns its new size in bytes."""
    with _open(file, received, timeout) as response:
        if received and not _continues(response, received):
            received = 0
        with part.open("ab" if received else "wb") as stream:
            progress(file, received)
            while received <= file.size and (chunk := _read(response)):
                stream.write(chunk)
                received += len(chunk)
                progress(file, min(received, file.size))
            stream.flush()
            os.fsync(stream.fileno())
    return received


def _open(file: RemoteFile, received: int, timeout: float) -> HTTPResponse:
    headers = {"User-Agent": f"permalign/{__version__}", "Accept-Encoding": "identity"}
    if received:
        headers["Range"] = f"bytes={received}-"
    try:
        response: HTTPResponse = urlopen(Request(file.url, headers=headers), timeout=timeout)
        return response
    except HTTPError as error:
        error.close()
        reason = f"the server answered {error.code} {error.reason}"
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _RangeRefusedError(reason) from None
        raise _AttemptFailedError(reason, final=error.code in _PERMANENT_ERRORS) from None
    except (OSError, HTTPException) as error:
        raise _AttemptFailedError(
            str(getattr(error, "reason", "") or error or type(error).__name__)
        ) from None


def _continues(response: HTTPResponse, received: int) -> bool:
    """Whether the server sends the file from the requested byte on, and not from its beginning."""
    return response.status == HTTPStatus.PARTIAL_CONTENT and response.headers.get(
        "Content-Range", ""
    ).startswith(f"bytes {received}-")


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read1(_CHUNK)
    except TimeoutError:
        raise _AttemptFailedError("the connection stalled") from None
    except (OSError, HTTPException) as error:
        raise _AttemptFailedError(f"the connection broke ({error or type(error).__name__})") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download_error(file: RemoteFile, path: Path, reason: str) -> PermalignError:
    return PermalignError(
        f"Could not download {file.url}: {reason}.\n"
        f"Try again later, or get the file from elsewhere (sha256 {file.sha256}) and place it at {path}"
    )


def _no_progress(file: RemoteFile, received: int) -> None:
    """Do not report the progress."""
