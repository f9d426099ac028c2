"""HTTP connections with a time limit for sending a request, which uvicorn does not have."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_BODY = b'{"error":"The request took too long to arrive; send it again."}'
REFUSAL = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)
"""The answer to a request that does not arrive in time."""


class RequestDeadlineProtocol(H11Protocol):
    """A connection that is closed when a request does not arrive in time.

    Without a limit, clients that send half a request and then wait take all connections that the server accepts. The
    time begins when the connection is opened, or with the first byte of a later request, and ends with the last byte of
    the request's body. The time that the answer takes does not count, nor does the time between two requests, for which
    uvicorn has a limit of its own.

    `with_deadline` makes a class with another limit: uvicorn creates the connections itself.
    """

    seconds: float
    """How long a request may take to arrive."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._start_or_stop()

    def on_response_complete(self) -> None:
        """Wait for the next request, whose first part may already be here, or for the rest of this one."""
        super().on_response_complete()
        self._start_or_stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        self._stop()
        super().connection_lost(exc)

    def _start_or_stop(self) -> None:
        """Let the time run if a part of a request is here, but not all of it."""
        state = self.conn.their_state
        if state is h11.SEND_BODY or (state is h11.IDLE and self.conn.trailing_data[0]):
            if self._deadline is None:
                self._start()
        else:
            self._stop()

    def _start(self) -> None:
        self._deadline = self.loop.call_later(self.seconds, self._give_up)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        """Close the connection, with status 408 if a part of a request has come and nothing has been answered yet."""
        if self.transport.is_closing():
            return
        state = self.conn.our_state
        if state is h11.SEND_RESPONSE or (state is h11.IDLE and self.conn.trailing_data[0]):
            if self.cycle is not None:
                self.cycle.disconnected = True  # what the application might still answer is dropped
            self.transport.write(REFUSAL)
        self.transport.close()


def with_deadline(seconds: float) -> type[RequestDeadlineProtocol]:
    """Return the class of connections with a limit."""
    return type("RequestDeadlineProtocol", (RequestDeadlineProtocol,), {"seconds": seconds})
