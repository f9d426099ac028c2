"""Download datasets.

A file is written under a name that ends in ``.part``, and renamed once its checksum is verified, so that incomplete
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
_FINAL_ANSWERS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts and retries.

    Attributes:
        timeout: the seconds without a byte after which a connection counts as stalled.
        attempts: the number of attempts, at least 1.
        pause: the seconds before the second attempt; doubled for each further one.
    """

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 0.5


class _AttemptFailedError(Exception):
    """One attempt failed; unless it is ``final``, another one may succeed."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class _RangeRefusedError(_AttemptFailedError):
    """The server has fewer bytes than were downloaded already, so those belong to another file."""


def find_download(name: str) -> Download:
    """The download of a given name; an unknown name raises a `UsageError` that suggests the nearest."""
    for download in DOWNLOADS:
        if download.name == name:
            return download
    raise UsageError(unknown_name("download", name, [download.name for download in DOWNLOADS]))


def fetch(
    download: Download,
    data_dir: str | Path | None = None,
    *,
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> list[Path]:
    """Download all files of a dataset to their folder; existing files are only verified.

    Raises:
        PermalignError: a file cannot be downloaded, or a different file has its name. The message says which file to
            place where.
    """
    folder = data_root(data_dir) / download.folder
    return [
        fetch_file(file, folder / file.name, progress or _no_progress, patience or Patience())
        for file in download.files
    ]


def fetch_file(file: RemoteFile, path: Path, progress: Progress, patience: Patience) -> Path:
    """Download one file to ``path``, unless it exists."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _try_repeatedly(file, path, progress, patience)
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


def _try_repeatedly(file: RemoteFile, path: Path, progress: Progress, patience: Patience) -> None:
    part = path.with_name(path.name + ".part")
    for attempt in range(1, patience.attempts + 1):
        try:
            _complete(file, part, progress, patience.timeout)
        except _AttemptFailedError as failure:
            if failure.final or attempt == patience.attempts:
                raise _given_up(file, path, str(failure)) from None
            time.sleep(patience.pause * 2 ** (attempt - 1))
        else:
            os.replace(part, path)
            return


def _complete(file: RemoteFile, part: Path, progress: Progress, timeout: float) -> None:
    """Download the missing rest of a file, and verify its checksum."""
    have = part.stat().st_size if part.exists() else 0
    if have > file.size:
        part.unlink()
        have = 0
    if have < file.size:
        try:
            have = _download(file, part, have, progress, timeout)
        except _RangeRefusedError:
            part.unlink(missing_ok=True)
            raise
    if have < file.size:
        raise _AttemptFailedError(f"the connection ended after {have:,} of {file.size:,} bytes")
    if have > file.size or _sha256(part) != file.sha256:
        part.unlink()
        raise _AttemptFailedError("the server's file is not the expected one (its checksum differs)")


def _download(file: RemoteFile, part: Path, have: int, progress: Progress, timeout: float) -> int:
    """Append what the server sends to the part; returns its new size in bytes."""
    with _open(file, have, timeout) as response:
        if have and not _continues(response, have):
            have = 0
        with part.open("ab" if have else "wb") as stream:
            progress(file, have)
            while have <= file.size and (chunk := _read(response)):
                stream.write(chunk)
                have += len(chunk)
                progress(file, min(have, file.size))
            stream.flush()
            os.fsync(stream.fileno())
    return have


def _open(file: RemoteFile, have: int, timeout: float) -> HTTPResponse:
    headers = {"User-Agent": f"permalign/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response: HTTPResponse = urlopen(Request(file.url, headers=headers), timeout=timeout)
        return response
    except HTTPError as error:
        error.close()
        reason = f"the server answered {error.code} {error.reason}"
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _RangeRefusedError(reason) from None
        raise _AttemptFailedError(reason, final=error.code in _FINAL_ANSWERS) from None
    except (OSError, HTTPException) as error:
        raise _AttemptFailedError(
            str(getattr(error, "reason", "") or error or type(error).__name__)
        ) from None


def _continues(response: HTTPResponse, have: int) -> bool:
    """Whether the server sends only the rest of the file, from the requested byte on."""
    return response.status == HTTPStatus.PARTIAL_CONTENT and response.headers.get(
        "Content-Range", ""
    ).startswith(f"bytes {have}-")


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


def _given_up(file: RemoteFile, path: Path, reason: str) -> PermalignError:
    return PermalignError(
        f"Could not download {file.url}: {reason}.\n"
        f"Try again later, or get the file from elsewhere (sha256 {file.sha256}) and place it at {path}"
    )


def _no_progress(file: RemoteFile, have: int) -> None:
    """Ignore the progress."""
