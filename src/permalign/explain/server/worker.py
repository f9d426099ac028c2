"""The thread that runs the models, with a short queue in front of it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from permalign.explain.server.rate_limit import TooManyRequestsError

Result = TypeVar("Result")


class AnswerTimeoutError(Exception):
    """An answer took longer than a client may wait."""


class ModelWorker:
    """One thread for all requests, with a limit on how many wait and how long each of them waits.

    Models share the threads of torch, so answering two sentences at the same time would only slow down both. A job
    that takes too long ends in an `AnswerTimeoutError`, but still counts as pending until the thread is done with it.

    Args:
        max_pending: how many jobs may run or wait at the same time.
        timeout_seconds: how long a job may take, the time in the queue included.
    """

    def __init__(self, max_pending: int, timeout_seconds: float) -> None:
        self._max_pending, self._timeout_seconds = max_pending, timeout_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="permalign-explorer")
        self._pending = 0

    async def run(self, job: Callable[[], Result]) -> Result:
        """Run a job in the thread and return its result; an error of the job is raised here.

        Raises:
            TooManyRequestsError: too many jobs are pending.
            AnswerTimeoutError: the job was not done in time.
        """
        if self._pending >= self._max_pending:
            raise TooManyRequestsError(1.0)
        loop = asyncio.get_running_loop()
        self._pending += 1
        future = self._thread.submit(job)
        future.add_done_callback(lambda _: _call_in_loop(loop, self._finish))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._timeout_seconds)
        except TimeoutError:
            future.cancel()
            raise AnswerTimeoutError from None

    def _finish(self) -> None:
        self._pending -= 1

    def close(self) -> None:
        """Accept no more jobs, and drop those that have not begun."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call a function in the event loop's own thread, unless the server has already stopped."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
