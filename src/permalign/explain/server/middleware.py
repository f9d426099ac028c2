"""What stands before the application: who may ask, how much, how often, and what a browser may do with answers."""

import asyncio
import ipaddress
import json
from collections.abc import Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from permalign.explain.server.limits import Buckets, Limits, TooManyError

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # a page's address holds the sentence
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
BODY_SECONDS = 10.0
"""How long a client may take to send its request."""


class RefusedError(Exception):
    """A request that is not let in: a status and the reason in plain words."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class Guard:
    """Checks the host, the rate and the size of requests, and adds headers to all answers.

    Args:
        app: what comes behind it.
        limits: of size and rate.
        hosts: names, beside localhost and plain addresses, by which browsers may ask. Another name means that some
            other site's name was pointed at this machine (DNS rebinding), and is refused.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Sequence[str] = ()) -> None:
        self._app, self._limits = app, limits
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._buckets = Buckets(limits.burst, limits.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(one for one in added if one[0] not in present)]
            await send(message)

        try:
            self._require_host(scope)
            self._require_rate(scope)
            body = await self._body(scope, receive)
        except RefusedError as refusal:
            await _answer(refusal, send_with_headers)
            return
        await self._app(scope, _replayed(body, receive), send_with_headers)

    def _require_host(self, scope: Scope) -> None:
        host = _header(scope, b"host").lower()
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        name = name.strip("[]")
        if name not in self._hosts and not _is_address(name):
            raise RefusedError(
                421, "This server does not answer to that host name. Start it with --allow-host if it should."
            )

    def _require_rate(self, scope: Scope) -> None:
        if not scope["path"].startswith("/api/"):
            return
        client = scope.get("client")
        try:
            self._buckets.take(client[0] if client else "")
        except TooManyError as error:
            raise RefusedError(
                429, f"Too many requests; try again in {error.seconds} s.", error.seconds
            ) from None

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, if it is small enough and comes soon enough."""
        declared = _header(scope, b"content-length")
        if declared.isdigit() and int(declared) > self._limits.body:
            raise self._too_large()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body: bytes = b""
                while True:
                    message = await receive()
                    body += message.get("body", b"")
                    if len(body) > self._limits.body:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return body
        except TimeoutError:
            raise RefusedError(408, "The request did not arrive in time.") from None

    def _too_large(self) -> RefusedError:
        return RefusedError(
            413, f"The request is larger than {self._limits.body:,} bytes; send a shorter sentence."
        )


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _is_address(name: str) -> bool:
    """Whether a host is a plain IP address, which nobody can point elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A way to receive a body that has been read already; what comes after it is still awaited."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


async def _answer(refusal: RefusedError, send: Send) -> None:
    body = json.dumps({"error": refusal.reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
