"""The worker processes that run the models, and the queue in front of them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from permalign.explain.server.rate_limit import TooManyRequestsError
from permalign.explain.server.worker import Worker, WorkerDiedError
from permalign.explain.server.worker_messages import Answer, Job

Result = TypeVar("Result")

SECONDS_TO_START = 120.0
"""How long a job waits for the first process, which takes a while to start."""

SECONDS_TO_FINISH = 1.0
"""How long a job may go on when nobody waits for it any more: to start a process again costs more than most jobs."""


class AnswerTimeoutError(Exception):
    """An answer took longer than a client may wait."""


class WorkerPool:
    """A few worker processes, with a limit on how many jobs wait for them and how long each of them waits.

    A process whose answer nobody waits for any more (because it takes too long, or because the client is gone) is
    killed a second later, unless it is done by then, and another is started in its place. The first process starts with
    the pool, the others one by one when a job finds all of them busy.

    Args:
        command: the command that starts a worker process.
        settings: the first line that a process reads.
        size: how many processes there may be.
        max_pending: how many requests may be answered or wait at the same time.
        timeout_seconds: how long a job may take, the time in the queue included; the first process may take as long as
            it needs to start.
    """

    def __init__(
        self, command: Sequence[str], settings: bytes, size: int, max_pending: int, timeout_seconds: float
    ) -> None:
        self._workers = [Worker(command, settings) for _ in range(size)]
        self._max_pending, self._timeout_seconds = max_pending, timeout_seconds
        self._pending = 0
        self._not_started: list[Worker] = []
        self._idle: asyncio.LifoQueue[Worker] = (
            asyncio.LifoQueue()
        )  # the last one has what it needs in memory
        self._has_started = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Start the first process; this does not wait until it is ready."""
        first, *self._not_started = self._workers
        self._launch(first)

    def _launch(self, worker: Worker) -> None:
        """Start a process; when it is ready, it gets jobs."""

        async def launch() -> None:
            with suppress(WorkerDiedError, OSError):  # the next job tries again, and tells its client
                await worker.start()
            self._idle.put_nowait(worker)
            self._has_started.set()

        self._keep(launch())

    def _keep(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """Run something that goes on when its caller does not, until the pool is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @contextmanager
    def place(self) -> Iterator[None]:
        """Let one more request wait.

        Raises:
            TooManyRequestsError: too many requests are waiting.
        """
        if self._pending >= self._max_pending:
            raise TooManyRequestsError(1.0)
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1

    async def run(self, job: Job) -> Answer:
        """Let a process answer a job; if this is cancelled, so is the job.

        Raises:
            TooManyRequestsError: too many requests are waiting.
            AnswerTimeoutError: the job was not done in time.
            WorkerDiedError: the process ended unexpectedly.
        """
        with self.place():
            return await self.run_when_free(lambda: job)

    async def run_when_free(self, make_job: Callable[[], Job]) -> Answer:
        """Let a process answer a job that is made when the process is free, however many requests are waiting.

        Raises:
            AnswerTimeoutError: the job was not done in time.
            WorkerDiedError: the process ended unexpectedly.
        """
        try:
            async with asyncio.timeout(SECONDS_TO_START):
                await self._has_started.wait()
            async with asyncio.timeout(self._timeout_seconds):
                if self._idle.empty() and self._not_started:
                    self._launch(self._not_started.pop())
                worker = await self._idle.get()
                return await self._answer(worker, make_job())
        except TimeoutError:
            raise AnswerTimeoutError from None

    async def _answer(self, worker: Worker, job: Job) -> Answer:
        """Return the answer of a process, which is free again when it is done, even if nobody waits for that."""

        async def answer() -> Answer:
            try:
                return await worker.answer(job)
            finally:
                if worker.is_running:
                    self._idle.put_nowait(worker)
                else:
                    self._launch(worker)

        running = self._keep(answer())
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            running.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )  # nobody wants to know
            asyncio.get_running_loop().call_later(SECONDS_TO_FINISH, running.cancel)
            raise

    async def close(self) -> None:
        """End all processes, whatever they are computing."""
        while self._tasks:  # the end of one may start another
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in self._workers))
