"""The thread that runs the models."""

import asyncio
import time

import pytest

from permalign.explain.server.rate_limit import TooManyRequestsError
from permalign.explain.server.worker import AnswerTimeoutError, ModelWorker


def test_results_and_errors_are_handed_on():
    async def check():
        worker = ModelWorker(max_pending=1, timeout_seconds=5)
        assert await worker.run(lambda: 7) == 7
        with pytest.raises(KeyError):
            await worker.run(lambda: {}["missing"])
        await asyncio.sleep(0.01)
        assert await worker.run(lambda: 8) == 8  # a job that failed no longer counts as pending
        worker.close()

    asyncio.run(check())


def test_a_job_that_takes_too_long_is_given_up():
    async def check():
        worker = ModelWorker(max_pending=2, timeout_seconds=0.05)
        with pytest.raises(AnswerTimeoutError):
            await worker.run(lambda: time.sleep(0.5))
        one, other = (asyncio.create_task(worker.run(lambda: 1)) for _ in range(2))
        with pytest.raises(TooManyRequestsError):
            await other
        with pytest.raises(AnswerTimeoutError):
            await one
        worker.close()

    asyncio.run(check())
