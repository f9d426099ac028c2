"""One worker process, as the server sees it: started when it is needed, asked, and killed."""

import asyncio
import json
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress

from permalign.explain.server.worker_messages import READY, Answer, Job

MODULE = "permalign.explain.server.worker_process"


class WorkerDiedError(Exception):
    """A worker process ended before it had answered."""


def worker_command() -> list[str]:
    """Return the command that starts a worker process, which imports modules from where this process does."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from {MODULE} import main; main()"
    return [sys.executable, "-c", program]


class Worker:
    """A process that answers one job at a time.

    Args:
        command: the command that starts the process.
        settings: the first line that the process reads.
    """

    def __init__(self, command: Sequence[str], settings: bytes) -> None:
        self._command, self._settings = command, settings
        self._process: Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None

    async def start(self) -> Process:
        """Start the process, unless it runs, and wait until it is ready.

        Raises:
            WorkerDiedError: the process ended before that.
        """
        if self._process is None:
            # in a session of its own: Ctrl-C is for the server, which then ends its workers
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, start_new_session=True
            )
            try:
                to_process, from_process = _pipes(process)
                to_process.write(self._settings)
                if await from_process.readline() != READY:
                    raise WorkerDiedError
            except BaseException:
                await _end(process)
                raise
            self._process = process
        return self._process

    async def answer(self, job: Job) -> Answer:
        """Let the process answer a job; if this is cancelled, the process is killed."""
        to_process, from_process = _pipes(await self.start())
        try:
            to_process.write(job.to_line())
            header = await from_process.readline()
            if not header:
                raise WorkerDiedError
            status, media_type, size = json.loads(header)
            return Answer(status, media_type, await from_process.readexactly(size))
        except BaseException as error:
            await self.kill()
            if isinstance(error, OSError | asyncio.IncompleteReadError):
                raise WorkerDiedError from None
            raise

    async def kill(self) -> None:
        """End the process, whatever it is computing; the next job starts another one."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process)


def _pipes(process: Process) -> tuple[StreamWriter, StreamReader]:
    """Return the standard input and the standard output of a process."""
    if process.stdin is None or process.stdout is None:
        raise AssertionError("the process was started with pipes")
    return process.stdin, process.stdout


async def _end(process: Process) -> None:
    """Kill a process, and wait until the system has forgotten it."""
    with suppress(ProcessLookupError):  # it has ended by itself
        process.kill()
    await process.communicate()
