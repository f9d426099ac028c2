"""Checks that every request passes before it reaches the application, and headers that every answer carries."""

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from permalign.explain.server.rate_limit import RateLimiter, TooManyRequestsError

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
        if scope["type"] == "http" and not self._is_allowed(Headers(scope=scope).get("host", "")):
            reason = "This server does not answer to that host name. Start it with --allow-host if it should."
            await _error_response(421, reason)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        host = host.lower()
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]  # without the port
        name = name.strip("[]")
        return name in self._allowed_hosts or _is_ip_address(name)


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


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _error_response(status: int, reason: str, retry_after: int | None = None) -> JSONResponse:
    headers = None if retry_after is None else {"Retry-After": str(retry_after)}
    return JSONResponse({"error": reason}, status, headers)
