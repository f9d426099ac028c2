"""Serving at a real port."""

import asyncio
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse

import pytest

from permalign.explain.server.limits import Limits
from permalign.explain.server.listening import Server, bind, configuration
from permalign.explain.server.middleware import CancelOnDisconnect

SHORT = 0.5
HEADER = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\n\r\n"
HALF_REQUESTS = [b"", b"GET / HT", HEADER[:-2], HEADER, HEADER + b"abc"]


async def read_and_answer(scope, receive, send):
    """Answer with the body of the request."""
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    body = body or b"ok"
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(app=read_and_answer, max_connections=3, **limits):
    """Serve an application by a thread; yields a function that connects to it."""
    config = configuration(app, Limits(**limits))
    config.limit_concurrency = max_connections
    listener = bind("127.0.0.1", 0)
    server = Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    with ExitStack() as opened:

        def connect():  # the socket is already open, so a client that comes early waits
            return opened.enter_context(socket.create_connection(listener.getsockname(), timeout=20))

        yield connect
        while not server.started:
            time.sleep(0.01)
        server.should_exit = True
        thread.join(20)
    listener.close()
    assert not thread.is_alive()


def read_answer(connection):
    """The status and the body of an answer."""
    answer = HTTPResponse(connection)
    answer.begin()
    return answer.status, answer.read()


def ask(connection, path=b"/"):
    connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
    return connection


def get(connection):
    return read_answer(ask(connection))


def wait_for_an_answer(connect):
    """Ask until the server has noticed that others are gone, for ten seconds at least."""
    for _ in range(1000):
        if (status := get(connect())[0]) == 200:
            return
        time.sleep(0.01)
    raise AssertionError(f"the last answer had the status {status}")


def read_to_end(connection):
    return b"".join(iter(lambda: connection.recv(4096), b""))


def test_connections_beyond_the_limit_are_refused_until_others_end():
    with serving() as connect:
        opened = [connect() for _ in range(2)]
        assert all(get(connection)[0] == 200 for connection in opened)
        assert get(connect())[0] == 503
        opened.pop().close()
        wait_for_an_answer(connect)


@pytest.mark.parametrize("half", HALF_REQUESTS)
def test_half_a_request_is_refused_in_time(half, capsys):
    with serving(CancelOnDisconnect(read_and_answer), request_seconds=SHORT) as connect:
        slow = connect()
        slow.sendall(half)
        answer = read_to_end(slow)
    assert answer.startswith(b"HTTP/1.1 408 ") if half else answer == b""
    assert not capsys.readouterr().err


def test_half_of_a_later_request_is_refused_in_time():
    with serving(request_seconds=SHORT) as connect:
        slow = connect()
        assert get(slow) == (200, b"ok")
        slow.sendall(b"GET / HT")
        assert read_to_end(slow).startswith(b"HTTP/1.1 408 ")


def test_half_of_a_request_sent_together_with_the_one_before_is_refused_in_time():
    with serving(request_seconds=SHORT) as connect:
        slow = connect()
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEADER[:-2])
        first, _, second = read_to_end(slow).partition(b"HTTP/1.1 408 ")
        assert first.endswith(b"ok")
        assert second


def test_a_body_sent_one_byte_at_a_time_is_refused_in_time():
    with serving(request_seconds=SHORT) as connect:
        slow = connect()
        slow.settimeout(SHORT / 10)
        slow.sendall(HEADER.replace(b"6", b"1000"))
        answer = b""
        while not answer:
            slow.sendall(b"a")
            try:
                answer = slow.recv(4096)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_others_are_answered_when_slow_clients_are_gone():
    with serving(max_connections=len(HALF_REQUESTS) + 1, request_seconds=5.0) as connect:
        slow = [connect() for _ in HALF_REQUESTS]
        for connection, half in zip(slow, HALF_REQUESTS, strict=True):
            connection.sendall(half)
        assert get(connect())[0] == 503
        for connection in slow:
            read_to_end(connection)
        wait_for_an_answer(connect)


def test_a_request_in_pieces_within_the_limit_is_answered():
    with serving(request_seconds=60) as connect:
        slow = connect()
        for piece in (HEADER[:20], HEADER[20:], b"abc", b"def"):
            time.sleep(0.05)
            slow.sendall(piece)
        assert read_answer(slow) == (200, b"abcdef")


def test_the_time_between_requests_and_the_time_of_an_answer_have_no_limit():
    async def slow_answer(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.sleep(2 * SHORT)
        await read_and_answer(scope, receive, send)

    with serving(slow_answer, request_seconds=SHORT) as connect:
        patient = connect()
        for _ in range(2):
            assert get(patient) == (200, b"ok")
            time.sleep(2 * SHORT)


MUCH = 20_000_000
"""More bytes than the system keeps for a client that does not read."""


async def answer_as_asked(scope, receive, send):
    """Never answer a request for /never, and answer much to one for /much."""
    if scope.get("path") == "/never":
        await asyncio.Event().wait()
    if scope.get("path") != "/much":
        await read_and_answer(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * MUCH})


@pytest.mark.parametrize(
    ("app", "path"), [(CancelOnDisconnect(answer_as_asked), b"/never"), (answer_as_asked, b"/much")]
)
def test_a_request_in_progress_does_not_keep_the_server_from_ending(app, path, capsys):
    with serving(app) as connect:
        ask(connect(), path)
        time.sleep(0.2)
    assert not capsys.readouterr().err


def wait_for_room(connect, meanwhile=lambda: None):
    """Open connections until one is answered instead of being refused for lack of room."""
    end = time.monotonic() + 15
    while (answer := get(connect())) != (200, b"ok"):
        assert answer[0] == 503
        assert time.monotonic() < end, "the server did not close the other connections"
        meanwhile()
        time.sleep(0.05)


def test_a_client_that_hardly_reads_its_answer_is_cut_off_in_time(capsys):
    app = CancelOnDisconnect(answer_as_asked)
    with serving(app, max_connections=2, answer_seconds=SHORT) as connect:
        slow = ask(connect(), b"/much")
        slow.recv(1)  # the answer has begun
        wait_for_room(connect, meanwhile=lambda: slow.recv(100))
        assert len(read_to_end(slow)) < MUCH
    assert "Traceback" not in capsys.readouterr().err


def test_answers_that_nobody_reads_take_a_limited_amount_of_memory():
    with serving(answer_as_asked, 5, answer_seconds=60, max_unsent_bytes=2 * MUCH) as connect:
        slow = [ask(connect(), b"/much") for _ in range(4)]
        for connection in slow:
            connection.recv(1)  # the system keeps a part of each answer; the rest of all four is too large
        wait_for_room(connect)
        answers = [len(read_to_end(connection)) >= MUCH for connection in slow]
    assert not all(answers)
    assert any(answers)
