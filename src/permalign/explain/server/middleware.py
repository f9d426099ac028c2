"""Checks that every request passes before it reaches the application, and headers that every answer carries."""

import asyncio
import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from permalign.explain.server.rate_limit import RateLimiter, TooManyRequestsError

HOST = re.compile(r"(?:(?P<name>[a-z0-9._-]+)|\[(?P<address>[0-9a-f:.]+)\])(?::[0-9]{1,5})?")
"""A host name or IP address, in brackets if it has colons, and perhaps a port."""

CONTENT_SECURITY_POLICY = "; ".join(
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
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # the page's address contains the sentence
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class SecurityHeaders:
    """Adds `SECURITY_HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class HostCheck:
    """Answers only requests for known host names.

    Any other name means that somebody pointed the name of another site at this machine (DNS rebinding), so that its
    scripts could read our answers. An IP address cannot be pointed elsewhere, and is always allowed. Starlette's
    TrustedHostMiddleware has no such rule for addresses.

    Args:
        app: the application behind the check.
        allowed_hosts: host names to allow in addition to localhost.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str] = ()) -> None:
        self._app = app
        self._allowed_hosts = {"localhost", *(host.lower() for host in allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with status 421."""
        if scope["type"] == "http" and not self._is_allowed(Headers(scope=scope).getlist("host")):
            reason = "This server does not answer to that host name. Start it with --allow-host if it should."
            await _error_response(421, reason)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_allowed(self, hosts: Sequence[str]) -> bool:
        """Return whether there is exactly one host, and it is known."""
        found = HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
        if found is None:
            return False
        address = found["address"]
        return found["name"] in self._allowed_hosts or _is_ip_address(
            found["name"] if address is None else address
        )


class SameSite:
    """Refuses requests that a page of another site may have sent, all of which a browser would send without asking.

    What a request asks for must be declared as JSON: a page of another site may send that only if we allow it when the
    browser asks us first, which we never do. Frameworks differ in what they make of a body of another type, or of none.
    A request that says which site it comes from must come from ours.

    Args:
        app: the application behind the check.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with status 403 or 415."""
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            headers = Headers(scope=scope)
            if _is_foreign(headers.get("origin"), headers.get("host", "")):
                await _error_response(403, "This request comes from another site.")(scope, receive, send)
                return
            media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type != "application/json":
                reason = "A request has to be JSON: send it with the header Content-Type: application/json."
                await _error_response(415, reason)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class CancelOnDisconnect:
    """Cancels the work for a request when its client is gone, or when the server stops.

    Args:
        app: the application, whose work is cancelled.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and listen to the client while the application works."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        messages: asyncio.Queue[Message] = asyncio.Queue(1)
        answered = False

        async def listen() -> None:
            """Hand messages on; after the body, the only one to come is that the client is gone."""
            while (message := await receive())["type"] != "http.disconnect":
                await messages.put(message)
            if not answered:
                work.cancel()
            await messages.put(message)

        async def send_and_notice(message: Message) -> None:
            nonlocal answered
            answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        work = asyncio.create_task(_call(self._app, scope, messages.get, send_and_notice))
        listening = asyncio.create_task(listen())
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:  # the server stops
            work.cancel()
            await _error_response(503, "The server was stopped.")(scope, receive, send)
            return
        finally:
            listening.cancel()
        if not work.cancelled():
            work.result()


class RateLimit:
    """Limits how often a client may call the API; the page itself is always served.

    Args:
        app: the application behind the limit.
        limiter: counts the requests of each client.
    """

    def __init__(self, app: ASGIApp, limiter: RateLimiter) -> None:
        self._app, self._limiter = app, limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with status 429."""
        if scope["type"] == "http" and scope["path"].startswith("/api/"):
            client = scope.get("client")
            try:
                self._limiter.take(client[0] if client else "")
            except TooManyRequestsError as error:
                reason = f"Too many requests; try again in {error.retry_after} s."
                await _error_response(429, reason, error.retry_after)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimit:
    """Stops reading a request whose body is too large, whether or not it declared its length.

    Args:
        app: the application behind the limit.
        max_bytes: the largest size of a body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; reading a body that is too large raises an HTTPException with status 413."""
        received = 0

        async def receive_within_limit() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(
                    413, f"the request is larger than {self._max_bytes:,} bytes; send a shorter sentence."
                )
            return message

        await self._app(scope, receive_within_limit, send)


async def _call(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


def _is_foreign(origin: str | None, host: str) -> bool:
    """Return whether a request comes from a page of another host; ports are left out, because a proxy may hide them."""
    if origin is None:
        return False
    try:
        return urlsplit(origin).hostname != urlsplit(f"//{host}").hostname
    except ValueError:
        return True


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _error_response(status: int, reason: str, retry_after: int | None = None) -> JSONResponse:
    headers = None if retry_after is None else {"Retry-After": str(retry_after)}
    return JSONResponse({"error": reason}, status, headers)
