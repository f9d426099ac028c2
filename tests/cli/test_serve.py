"""``permalign serve`` as a process: it starts, prints its address, and stops when told to."""

import json
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.interrupts import accept_interrupts
from tests.models.small import make

COMMAND = [sys.executable, "-m", "permalign", "serve"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "tiny"
    make("soft", "ssnt").save_pretrained(folder / "model")
    return str(folder)


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory):
    """A model that explains long sentences for many seconds."""
    folder = tmp_path_factory.mktemp("served") / "slow"
    make("labelled exact", "segments", max_segment_length=4).save_pretrained(folder / "model")
    return str(folder)


@contextmanager
def serving(*arguments):
    """Start a server on a free port; yields its process and its address."""
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--port", "0"], stderr=subprocess.PIPE, text=True, preexec_fn=accept_interrupts
    )
    try:
        line = next(line for line in process.stderr if "explorer is at" in line)
        yield process, re.search(r"http://\S+/", line).group()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_server_answers_on_loopback_and_stops_cleanly(run, number):
    with serving(run) as (process, address):
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address + "api/runs") as answer:
            assert json.load(answer)[0]["name"] == "tiny"
        process.send_signal(number)
        assert process.wait(10) in (0, -signal.SIGTERM)
        assert "Traceback" not in process.stderr.read()


def test_a_request_in_progress_is_refused_when_the_server_stops(slow_run):
    with serving(slow_run) as (process, address), ThreadPoolExecutor() as clients:

        def explain(length, target_length):
            words = {
                "run": "slow",
                "sentence": " ".join("a" * length),
                "target": " ".join("A" * target_length),
            }
            headers = {"content-type": "application/json"}
            try:
                with urlopen(Request(address + "api/explain", json.dumps(words).encode(), headers)) as answer:
                    return answer.status
            except HTTPError as error:
                return error.code

        assert explain(2, 2) == 200  # a worker process is ready
        request = clients.submit(explain, 60, 20)
        assert not wait([request], timeout=1).done
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert request.result() == 503
        printed = process.stderr.read()
        assert "Traceback" not in printed
        assert "ERROR" not in printed


def test_without_a_run_the_models_of_the_package_are_served():
    with serving() as (_, address), urlopen(address + "api/runs") as answer:
        served = json.load(answer)
    assert [run["name"] for run in served] == ["dates", "arithmetic", "scan-sp"]
    assert served[0]["examples"][0] == "12 march 2021"


def test_a_port_in_use_is_an_error(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = subprocess.run([*COMMAND, run, "--port", str(port)], capture_output=True, text=True)
    assert result.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_run_is_an_error(tmp_path):
    result = subprocess.run([*COMMAND, str(tmp_path / "none")], capture_output=True, text=True)
    assert result.returncode == 1
    assert "is not a folder" in result.stderr


def test_a_missing_package_is_an_error_with_the_command_to_install_it(run):
    code = "import sys; sys.modules['fastapi'] = None; from permalign.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", code, "serve", run], capture_output=True, text=True)
    assert result.returncode == 1
    assert "permalign[serve]" in result.stderr
