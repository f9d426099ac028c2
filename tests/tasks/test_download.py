import gc
import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from permalign.errors import DataError, PermalignError, UsageError
from permalign.tasks import download as module
from permalign.tasks.download import fetch, find_download
from permalign.tasks.download_catalogue import DOWNLOADS, Download, RemoteFile

CONTENT = bytes(range(256)) * 2000
HALF = len(CONTENT) // 2


class Server(ThreadingHTTPServer):
    """Serves CONTENT at every path; the path's name says how it misbehaves, and how often."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []
        self.closing = threading.Event()

    def handle_error(self, request, client_address):
        """A client that hangs up on a misbehaving server is what the tests are about."""

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        behaviour, _, times = self.path.strip("/").partition("/")
        self.server.requests.append(behaviour)
        if times and len(self.server.requests) > int(times):
            behaviour = "good"
        getattr(self, behaviour)()

    def start(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()

    def good(self):
        self.start()
        self.wfile.write(CONTENT)

    def unsized(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CONTENT)

    def truncate(self):
        self.start()
        self.wfile.write(CONTENT[:HALF])

    def unsized_truncate(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CONTENT[:HALF])

    def corrupt(self):
        self.start()
        self.wfile.write(b"?" * len(CONTENT))

    def endless(self):
        self.send_response(200)
        self.end_headers()
        while not self.server.closing.is_set():
            self.wfile.write(b"?" * 100_000)

    def stall(self):
        self.start()
        self.wfile.write(CONTENT[:HALF])
        self.wfile.flush()
        self.server.closing.wait(5)

    def silent(self):
        self.server.closing.wait(5)

    def redirect(self):
        self.send_response(302)
        self.send_header("Location", "/good")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def loop(self):
        self.send_response(302)
        self.send_header("Location", "/loop")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def missing(self):
        self.send_error(404)

    def overloaded(self):
        self.send_error(503)

    def rubbish(self):
        self.wfile.write(b"this is not HTTP\r\n\r\n")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda seconds: None))
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()
    gc.collect()  # a connection that was left open is noticed here, because warnings are errors


@pytest.fixture
def get(server, tmp_path):
    def download(behaviour, **options):
        file = RemoteFile(
            "data.bin", server.url(behaviour), hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
        )
        return fetch(Download("toy", "toy", "none", (file,)), tmp_path, **options)

    return download


@pytest.fixture
def path(tmp_path):
    (tmp_path / "toy").mkdir()
    return tmp_path / "toy" / "data.bin"


@pytest.mark.parametrize("behaviour", ["good", "redirect", "unsized"])
def test_a_file_is_downloaded(get, path, behaviour):
    assert get(behaviour) == [path]
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


def test_progress_is_reported(get, path):
    reported = []
    get("good", progress=lambda file, have: reported.append(have))
    assert reported == sorted(reported)
    assert (reported[0], reported[-1]) == (0, len(CONTENT))


@pytest.mark.parametrize("behaviour", ["truncate", "unsized_truncate", "stall", "corrupt", "overloaded"])
def test_a_download_that_fails_is_tried_again(get, server, path, behaviour):
    begin = time.monotonic()
    get(f"{behaviour}/1")
    assert time.monotonic() - begin < 4
    assert path.read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_an_interrupted_download_leaves_nothing_behind(get, path):
    def interrupt(file, received):
        if received:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("good", progress=interrupt)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("behaviour", "reason", "requests"),
    [
        ("corrupt", "its checksum differs", 3),
        ("endless", "its checksum differs", 3),
        ("truncate", f"IncompleteRead({HALF} bytes read, {HALF} more expected)", 3),
        ("unsized_truncate", "its checksum differs", 3),
        ("stall", "timed out", 3),
        ("silent", "timed out", 3),
        ("missing", "404", 1),
        ("overloaded", "503", 3),
        ("loop", "redirects", None),
        ("rubbish", "this is not HTTP", 3),
    ],
)
def test_the_final_error_gives_the_url_and_the_path(get, server, path, behaviour, reason, requests):
    with pytest.raises(PermalignError) as caught:
        get(behaviour)
    assert reason in str(caught.value)
    assert server.url(behaviour) in str(caught.value)
    assert str(caught.value).endswith(f"place it at {path}")
    assert "\n" not in str(caught.value)
    assert hashlib.sha256(CONTENT).hexdigest() in str(caught.value)
    assert list(path.parent.iterdir()) == []
    if requests is not None:
        assert len(server.requests) == requests


def test_an_unreachable_server_is_an_error(server, path, tmp_path):
    file = RemoteFile("data.bin", "http://127.0.0.1:9/data.bin", "0" * 64, 3)
    with pytest.raises(
        PermalignError, match=r"could not download http://127.0.0.1:9/data.bin: .*refused"
    ) as caught:
        fetch(Download("toy", "toy", "none", (file,)), tmp_path)
    assert str(path) in str(caught.value)


def test_an_existing_file_is_verified_and_never_replaced(get, server, path):
    path.write_bytes(CONTENT)
    assert get("good") == [path]
    assert server.requests == []
    path.write_bytes(b"mine")
    with pytest.raises(DataError, match="is not the expected file"):
        get("good")
    assert path.read_bytes() == b"mine"


def test_a_file_in_place_of_the_folder_is_an_error(get, tmp_path):
    (tmp_path / "toy").write_text("in the way")
    with pytest.raises(DataError, match="cannot be read or written"):
        get("good")


def test_downloads_are_found_by_name():
    assert find_download("tatoeba").folder == "zh-en"
    with pytest.raises(UsageError, match=r"unknown download 'tatoba'; did you mean 'tatoeba'"):
        find_download("tatoba")


@pytest.mark.parametrize("download", DOWNLOADS, ids=lambda download: download.name)
def test_the_catalogue_describes_the_data(download, data_dir):
    """Every file in the data folder has the expected checksum, so nothing is downloaded."""
    reported = {}
    paths = fetch(download, data_dir, progress=lambda file, have: reported.update({file.name: have}))
    assert paths == [data_dir / download.folder / file.name for file in download.files]
    assert reported == {
        file.name: (data_dir / download.folder / file.name).stat().st_size for file in download.files
    }


def test_whoever_may_read_the_folder_may_read_a_downloaded_file(get, path):
    path.parent.chmod(0o755)
    get("good")
    assert path.stat().st_mode & 0o777 == 0o644
