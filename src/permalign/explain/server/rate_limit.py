"""A limit on how often each client may send a request."""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic


class TooManyRequestsError(Exception):
    """The server accepts no more requests now; `retry_after` says in how many seconds to try again."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many requests")
        self.retry_after = max(1, round(seconds))


class RateLimiter:
    """A token bucket for each client: every request takes a token, and tokens come back over time.

    Args:
        burst: how many tokens a full bucket holds.
        rate: how many tokens come back every second.
        max_clients: how many clients are remembered; the one that was silent longest is forgotten first.
        clock: returns the time in seconds.

    >>> now = [0.0]
    >>> limiter = RateLimiter(burst=1, rate=2, clock=lambda: now[0])
    >>> limiter.take("client")
    >>> limiter.take("client")
    Traceback (most recent call last):
    permalign.explain.server.rate_limit.TooManyRequestsError: too many requests
    >>> now[0] = 0.5
    >>> limiter.take("client")
    """

    def __init__(
        self, burst: float, rate: float, max_clients: int = 10_000, clock: Callable[[], float] = monotonic
    ) -> None:
        self._burst, self._rate, self._max_clients, self._clock = burst, rate, max_clients, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens left, and when

    def take(self, client: str) -> None:
        """Take a token from a client's bucket.

        Raises:
            TooManyRequestsError: the bucket is empty.
        """
        now = self._clock()
        tokens, last = self._buckets.pop(client, (self._burst, now))
        tokens = min(self._burst, tokens + (now - last) * self._rate)
        allowed = tokens >= 1.0
        self._buckets[client] = (tokens - 1.0 if allowed else tokens, now)
        if len(self._buckets) > self._max_clients:
            self._buckets.popitem(last=False)
        if not allowed:
            raise TooManyRequestsError((1.0 - tokens) / self._rate)
