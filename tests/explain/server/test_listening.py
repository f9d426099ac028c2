"""Serving at a real port."""

import socket
import threading
import time

import pytest
import uvicorn

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
def port():
    config = configuration(hello)
    config.limit_concurrency = 3
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield listener.getsockname()[1]  # already open, so a client that comes early waits
    while not server.started:
        time.sleep(0.01)
    server.should_exit = True
    thread.join(10)
    listener.close()


def get(connection):
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection.recv(4096)


def test_connections_beyond_the_limit_are_refused_until_others_end(port):
    opened = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(2)]
    assert all(get(connection).startswith(b"HTTP/1.1 200") for connection in opened)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as third:
        assert get(third).startswith(b"HTTP/1.1 503")
    opened.pop().close()
    time.sleep(0.1)
    with socket.create_connection(("127.0.0.1", port), timeout=5) as another:
        assert get(another).startswith(b"HTTP/1.1 200")
    opened.pop().close()
