"""Connections that are not kept waiting for: a request's header comes soon, and one client has few of them."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""How long a client may take to send a request's header."""
CONNECTIONS = 50
"""How many connections one client may have; a browser opens about six."""


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose header does not come in time, and those beyond a client's share.

    An application sees a request when its header is complete; whoever never completes one is seen here alone. Bodies
    are the business of `permalign.explain.server.middleware.Guard`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first header."""
        super().connection_made(transport)
        host = self.client[0] if self.client else None
        same = sum(
            1 for one in self.connections if (other := getattr(one, "client", None)) and other[0] == host
        )
        if same > CONNECTIONS:
            transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on while the header is incomplete: a letter now and then buys no time."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._rest()
        elif self._patience is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._rest()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._patience = asyncio.get_running_loop().call_later(HEADER_SECONDS, self.transport.abort)

    def _rest(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
