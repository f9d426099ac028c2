"""Serving an application at a port until it is interrupted."""

import asyncio
import errno
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from permalign.errors import PermalignError
from permalign.explain.server.deadlines import with_limits
from permalign.explain.server.limits import Limits

SECONDS_TO_CLOSE = 0.5
"""How long the last answers may take to be sent when the server ends."""


def listen(app: ASGIApp, limits: Limits, listener: socket.socket, ready: Callable[[str], None]) -> None:
    """Serve an application until Ctrl-C or SIGTERM.

    Args:
        app: the application.
        limits: how long a request may take to arrive, and its answer to be read.
        listener: the socket that `bind` returned; it is closed at the end.
        ready: called with the address of the page. The socket is already open, so a browser that comes before the
            server has started only waits a moment.
    """
    host, port = listener.getsockname()[:2]
    try:
        ready(f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/")
        Server(configuration(app, limits)).run(sockets=[listener])
    except KeyboardInterrupt:
        return
    finally:
        listener.close()


class Server(uvicorn.Server):
    """A server that ends at once: requests in progress are answered with status 503.

    uvicorn waits for them first, and prints an error when it has waited too long.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End all requests and connections, then the application."""
        for task in self.server_state.tasks:
            task.cancel()
        abort = asyncio.get_running_loop().call_later(SECONDS_TO_CLOSE, self._abort_connections)
        await super().shutdown(sockets)
        abort.cancel()

    def _abort_connections(self) -> None:
        """Close the connections of clients that do not read their answers."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


def configuration(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """Return the options with which uvicorn serves the explorer."""
    return uvicorn.Config(
        app,
        http=with_limits(limits),
        ws="none",  # a connection that becomes a WebSocket would have no limit
        log_level="warning",
        access_log=False,  # the page's address contains the sentence
        server_header=False,
        limit_concurrency=250,  # connections beyond these are answered with status 503
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,  # longer than SECONDS_TO_CLOSE, after which nothing is left to wait for
    )


def bind(host: str, port: int) -> socket.socket:
    """Open a socket at an address; port 0 takes any free port.

    Raises:
        PermalignError: the port is in use, or nothing can listen at this address.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PermalignError(
                f"port {port} of {host} is in use. Choose another with --port; --port 0 takes a free one."
            ) from None
        raise PermalignError(f"cannot listen at {host}, port {port}: {error.strerror}.") from None
    return listener
