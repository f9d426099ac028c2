"""HTTP connections with time limits for sending a request and for reading its answer, which uvicorn does not have."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from permalign.explain.server.limits import Limits

_BODY = b'{"error":"The request took too long to arrive; send it again."}'
REFUSAL = (
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)
"""The answer to a request that does not arrive in time."""


class AnswerDeadlineProtocol(H11Protocol):
    """A connection that is cut off when its client does not read an answer in time.

    Without a limit, clients that ask and do not read take all connections that the server accepts, and the memory of
    their answers. What the system has taken over for a client counts as read. If the answers that wait for clients
    become too large together, the client that has waited longest is cut off before its time.

    `with_limits` makes a class with other limits: uvicorn creates the connections itself.
    """

    limits = Limits()

    _answer_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Notice every byte of an answer that has to wait; by default, some are kept without notice."""
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        """Give the client some time to read what the system does not take over."""
        super().pause_writing()
        self._answer_deadline = self.loop.call_later(self.limits.answer_seconds, self.transport.abort)
        self._limit_unsent_bytes()

    def resume_writing(self) -> None:
        """Go on: the system has taken over the rest."""
        self._stop_answer_deadline()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        self._stop_answer_deadline()
        super().connection_lost(exc)

    def _stop_answer_deadline(self) -> None:
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None

    def _limit_unsent_bytes(self) -> None:
        """Cut off the clients that have waited longest, until the answers of the others are small enough."""
        waiting = [
            (connection._answer_deadline.when(), connection.transport)
            for connection in self.connections
            if isinstance(connection, AnswerDeadlineProtocol) and connection._answer_deadline is not None
        ]
        unsent = sum(transport.get_write_buffer_size() for _, transport in waiting)
        for _, transport in sorted(waiting, key=lambda pair: pair[0]):
            if unsent <= self.limits.max_unsent_bytes:
                return
            unsent -= transport.get_write_buffer_size()
            transport.abort()


class DeadlineProtocol(AnswerDeadlineProtocol):
    """A connection that is also closed when a request does not arrive in time.

    Without a limit, clients that send half a request and then wait take all connections that the server accepts. The
    time begins when the connection is opened, or with the first byte of a later request, and ends with the last byte of
    the request's body. The time that the answer takes does not count, nor does the time between two requests, for which
    uvicorn has a limit of its own.
    """

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
        self._deadline = self.loop.call_later(self.limits.request_seconds, self._give_up)

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


def with_limits(limits: Limits) -> type[DeadlineProtocol]:
    """Return the class of connections with these limits."""
    return type("DeadlineProtocol", (DeadlineProtocol,), {"limits": limits})
