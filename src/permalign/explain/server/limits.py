"""What one request may ask for, how many may come, and how many are worked on at once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    """Limits of a server, generous for a person and tight for a flood.

    Attributes:
        words: of a sentence, and of an output to explain.
        characters: of a sentence, and of an output to explain.
        batch: how many sentences one request may hold.
        samples: how many samples one request may ask for.
        body: bytes of a request.
        seconds: how long an answer may take.
        waiting: how many requests may wait for the model at once.
        burst: how many requests a client may send at once.
        rate: how many requests a client may send every second after that.
    """

    words: int = 60
    characters: int = 4000
    batch: int = 16
    samples: int = 16
    body: int = 65_536
    seconds: float = 20.0
    waiting: int = 12
    burst: float = 40.0
    rate: float = 5.0


class TooManyError(Exception):
    """More than can be worked on now; comes with the seconds after which to ask again."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many requests")
        self.seconds = max(1, round(seconds))


class TooSlowError(Exception):
    """An answer took longer than it may."""


class Buckets:
    """A token bucket for each client: a request takes a token, tokens come back with time.

    Args:
        burst: how many tokens a bucket holds.
        rate: how many come back every second.
        clients: how many clients are remembered; the one that was silent longest is forgotten first.
        clock: seconds, from any beginning.

    >>> now = [0.0]
    >>> buckets = Buckets(burst=1, rate=2, clock=lambda: now[0])
    >>> buckets.take("here")
    >>> buckets.take("here")
    Traceback (most recent call last):
    permalign.explain.server.limits.TooManyError: too many requests
    >>> now[0] = 0.5
    >>> buckets.take("here")
    """

    def __init__(
        self, burst: float, rate: float, clients: int = 10_000, clock: Callable[[], float] = monotonic
    ) -> None:
        self._burst, self._rate, self._clients, self._clock = burst, rate, clients, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Take a token; `TooManyError` if there is none."""
        now = self._clock()
        level, then = self._levels.pop(client, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._rate)
        enough = level >= 1.0
        self._levels[client] = (level - 1.0 if enough else level, now)
        if len(self._levels) > self._clients:
            self._levels.popitem(last=False)
        if not enough:
            raise TooManyError((1.0 - level) / self._rate)


class Workshop:
    """One thread that works for all, a short queue before it, and a limit on how long anybody waits.

    Models share torch's threads, so a second sentence at the same time would only slow both. Work that takes too
    long is answered with `TooSlowError`; it keeps its place in the count until it is really done.

    Args:
        waiting: how many pieces of work may be in the shop.
        seconds: how long one may take, the time in the queue included.
    """

    def __init__(self, waiting: int, seconds: float) -> None:
        self._waiting, self._seconds = waiting, seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="permalign-explorer")
        self._inside = 0

    async def do(self, work: Callable[[], Result]) -> Result:
        """The result of some work, whatever it raises included."""
        if self._inside >= self._waiting:
            raise TooManyError(1.0)
        loop = asyncio.get_running_loop()
        self._inside += 1
        future = self._thread.submit(work)
        future.add_done_callback(lambda _: _if_open(loop, self._leave))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        except TimeoutError:
            future.cancel()
            raise TooSlowError from None

    def _leave(self) -> None:
        self._inside -= 1

    def close(self) -> None:
        """Take no more work; what has not begun is dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _if_open(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call in the loop's own thread, unless the server has gone home."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
