import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from permalign.errors import DataError, PermalignError, UsageError
from permalign.tasks.download import RetryPolicy, fetch, find_download
from permalign.tasks.download_catalogue import DOWNLOADS, Download, RemoteFile

CONTENT = bytes(range(256)) * 2000
HALF = len(CONTENT) // 2
RETRIES = RetryPolicy(timeout=0.3, attempts=3, pause=0.01)


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
        begin = (
            int(self.headers["Range"].removeprefix("bytes=").rstrip("-")) if "Range" in self.headers else 0
        )
        self.server.requests.append((behaviour, begin))
        if times and len(self.server.requests) > int(times):
            behaviour = "good"
        getattr(self, behaviour)(begin)

    def start(self, begin=0):
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.end_headers()

    def good(self, begin):
        self.start(begin)
        self.wfile.write(CONTENT[begin:])

    def truncate(self, begin):
        self.start(begin)
        self.wfile.write(CONTENT[begin:HALF])

    def corrupt(self, begin):
        self.start(begin)
        self.wfile.write(b"?" * len(CONTENT[begin:]))

    def endless(self, begin):
        self.send_response(200)
        self.end_headers()
        while not self.server.closing.is_set():
            self.wfile.write(b"?" * 100_000)

    def stall(self, begin):
        self.start(begin)
        self.wfile.write(CONTENT[begin:HALF])
        self.wfile.flush()
        self.server.closing.wait(5)

    def silent(self, begin):
        self.server.closing.wait(5)

    def redirect(self, begin):
        self.send_response(302)
        self.send_header("Location", "/good")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def loop(self, begin):
        self.send_response(302)
        self.send_header("Location", "/loop")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def whole(self, begin):
        self.start()
        self.wfile.write(CONTENT)

    def missing(self, begin):
        self.send_error(404)

    def overloaded(self, begin):
        self.send_error(503)

    def smaller(self, begin):
        if begin:
            self.send_error(416)
        else:
            self.good(begin)

    def rubbish(self, begin):
        self.wfile.write(b"this is not HTTP\r\n\r\n")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def get(server, tmp_path):
    def download(behaviour, **options):
        file = RemoteFile(
            "data.bin", server.url(behaviour), hashlib.sha256(CONTENT).hexdigest(), len(CONTENT)
        )
        return fetch(Download("toy", "toy", "none", (file,)), tmp_path, **{"retries": RETRIES, **options})

    return download


@pytest.fixture
def path(tmp_path):
    (tmp_path / "toy").mkdir()
    return tmp_path / "toy" / "data.bin"


@pytest.fixture
def part(path):
    return path.with_name("data.bin.part")


@pytest.mark.parametrize("behaviour", ["good", "redirect", "whole"])
def test_a_file_is_downloaded(get, path, part, behaviour):
    assert get(behaviour) == [path]
    assert path.read_bytes() == CONTENT
    assert not part.exists()


def test_progress_is_reported(get, path):
    reported = []
    get("good", progress=lambda file, have: reported.append(have))
    assert reported == sorted(reported)
    assert (reported[0], reported[-1]) == (0, len(CONTENT))


def test_a_truncated_download_is_resumed(get, server, path):
    get("truncate/1")
    assert path.read_bytes() == CONTENT
    assert server.requests == [("truncate", 0), ("truncate", HALF)]


def test_a_stalled_download_is_resumed(get, server, path):
    begin = time.monotonic()
    get("stall/1")
    assert time.monotonic() - begin < 4
    assert path.read_bytes() == CONTENT
    assert server.requests[1][1] == HALF


def test_a_partial_file_of_an_earlier_run_is_completed(get, server, path, part):
    part.write_bytes(CONTENT[:1000])
    get("good")
    assert path.read_bytes() == CONTENT
    assert server.requests == [("good", 1000)]


@pytest.mark.parametrize("behaviour", ["whole", "smaller"])
def test_a_download_restarts_if_the_server_cannot_resume(get, path, part, behaviour):
    part.write_bytes(CONTENT[:1000])
    get(behaviour)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("old", [b"!" * 1000, b"!" * len(CONTENT), CONTENT + b"!"])
def test_a_partial_file_of_other_content_is_replaced(get, path, part, old):
    part.write_bytes(old)
    get("good")
    assert path.read_bytes() == CONTENT


def test_a_complete_partial_file_needs_no_download(get, server, path, part):
    part.write_bytes(CONTENT)
    get("good")
    assert path.read_bytes() == CONTENT
    assert server.requests == []


@pytest.mark.parametrize(
    ("behaviour", "reason", "requests"),
    [
        ("corrupt", "its checksum differs", 3),
        ("endless", "its checksum differs", 3),
        ("truncate", f"ended after {HALF:,} of {len(CONTENT):,} bytes", 3),
        ("stall", "the connection stalled", 3),
        ("silent", "timed out", 3),
        ("missing", "404", 1),
        ("overloaded", "503", 3),
        ("loop", "302", None),
        ("rubbish", "this is not HTTP", 3),
    ],
)
def test_the_final_error_gives_the_url_and_the_path(get, server, path, behaviour, reason, requests):
    with pytest.raises(PermalignError) as caught:
        get(behaviour)
    assert reason in str(caught.value)
    assert server.url(behaviour) in str(caught.value)
    assert str(path) in str(caught.value)
    assert hashlib.sha256(CONTENT).hexdigest() in str(caught.value)
    assert not path.exists()
    if requests is not None:
        assert len(server.requests) == requests


def test_a_corrupt_download_is_tried_again(get, path):
    get("corrupt/1")
    assert path.read_bytes() == CONTENT


def test_an_unreachable_server_is_an_error(path, tmp_path):
    file = RemoteFile("data.bin", "http://127.0.0.1:9/data.bin", "0" * 64, 3)
    with pytest.raises(
        PermalignError, match=r"Could not download http://127.0.0.1:9/data.bin: .*refused"
    ) as caught:
        fetch(Download("toy", "toy", "none", (file,)), tmp_path, retries=RETRIES)
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
