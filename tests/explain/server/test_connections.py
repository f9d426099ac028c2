"""Connections at a real port: who says nothing, or too slowly, or too often, is let go."""

import socket
import threading
import time

import pytest
import uvicorn

from permalign.explain.server import connections
from permalign.explain.server.listening import bind, configuration


async def hello(scope, receive, send):
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.4)
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(configuration(hello))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    listening.close()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def get(connection):
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = b""
    while not answer.endswith(b"ok"):
        answer += connection.recv(4096)
    return answer


def test_silence_ends_a_connection(port):
    with connect(port) as silent:
        assert is_closed(silent)


def drip(connection):
    connection.sendall(b"GET / HTTP/1.1\r\n")
    for _ in range(40):
        connection.sendall(b"a: b\r\n")
        time.sleep(0.1)


def test_dripping_a_header_buys_no_time(port):
    with connect(port) as slow:
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            drip(slow)
        assert time.monotonic() - began < 3


def test_one_request_after_another_is_answered(port):
    with connect(port) as polite:
        for pause in (0, 0.2, 0.6):  # a pause between requests is another matter than one within a header
            time.sleep(pause)
            assert get(polite).startswith(b"HTTP/1.1 200")
        polite.sendall(b"GET / HTT")
        assert is_closed(polite)


def test_one_client_has_its_share_of_connections(port):
    opened = [connect(port) for _ in range(3)]
    assert all(get(one).startswith(b"HTTP/1.1 200") for one in opened)
    with connect(port) as fourth:
        assert is_closed(fourth)
    opened.pop().close()
    time.sleep(0.1)
    with connect(port) as another:
        assert get(another).startswith(b"HTTP/1.1 200")
    for one in opened:
        one.close()
