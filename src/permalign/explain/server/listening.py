"""Listening at a port until somebody ends it."""

import errno
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from permalign.errors import PermalignError
from permalign.explain.server.connections import ImpatientProtocol


class _Server(uvicorn.Server):
    """Says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()


def listen(app: ASGIApp, listening: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve an application until Ctrl-C (or SIGTERM), which ends it quietly.

    Args:
        app: the application.
        listening: what `bind` gave; closed at the end.
        ready: called with the address of the page once it can be opened.
    """
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/"
    try:
        _Server(configuration(app), lambda: ready(address)).run(sockets=[listening])
    except KeyboardInterrupt:
        return
    finally:
        listening.close()


def configuration(app: ASGIApp) -> uvicorn.Config:
    """How uvicorn serves an application of ours."""
    return uvicorn.Config(
        app,
        http=ImpatientProtocol,
        log_level="warning",
        access_log=False,  # a page's address holds the sentence
        server_header=False,
        limit_concurrency=200,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address (port 0: any that is free); a `PermalignError` says why there can be none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PermalignError(
                f"port {port} of {host} is in use. Choose another with --port; --port 0 takes a free one."
            ) from None
        raise PermalignError(f"cannot listen at {host}, port {port}: {error.strerror}.") from None
    return listening
