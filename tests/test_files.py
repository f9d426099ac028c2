import errno
import os
import signal
import subprocess
import sys

import pytest

from permalign.errors import DataError
from permalign.files import LockedError, exclusive_lock, write_lines, write_text

HOLDER = """
import sys, time
from pathlib import Path
from permalign.files import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")

    def lines():
        yield "new"
        raise KeyError

    with pytest.raises(KeyError):
        write_lines(path, lines())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_lines_and_text_end_as_they_are_given(tmp_path):
    write_lines(tmp_path / "new" / "lines", ["ä", "b"])
    assert (tmp_path / "new" / "lines").read_bytes() == "ä\nb\n".encode()
    write_text(tmp_path / "text", "")
    assert (tmp_path / "text").read_bytes() == b""


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/inner: cannot be written \("):
        write_text(tmp_path / "file" / "inner", "x")


def test_a_lock_is_held_once_and_released(tmp_path):
    path = tmp_path / "folder" / "lock"
    with exclusive_lock(path):
        message = f"^the run is in use by process {os.getpid()}. Wait.$"
        with pytest.raises(LockedError, match=message), exclusive_lock(path, "the run is in use", "Wait."):
            pytest.fail("the lock was held twice")
    with exclusive_lock(path):
        pass


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_lock_in_a_folder_that_is_read_only_says_what_to_do(tmp_path, monkeypatch, number):
    def acquire(lock):
        raise OSError(number, "it is forbidden", str(tmp_path / "lock"))

    monkeypatch.setattr("filelock.FileLock.acquire", acquire)
    message = (
        r"lock: cannot be written \(it is forbidden\). Change the permissions of its folder, or use a copy"
    )
    with pytest.raises(DataError, match=message), exclusive_lock(tmp_path / "lock"):
        pytest.fail("nothing is locked")


def test_a_killed_process_releases_its_lock_and_names_itself_before(tmp_path):
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(LockedError, match=f"is locked by process {process.pid}.$"), exclusive_lock(path):
            pytest.fail("the lock was held twice")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with exclusive_lock(path):
        assert path.read_text() == f"{os.getpid()}\n"
