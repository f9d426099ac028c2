"""The worker processes: jobs and answers, processes that die or take too long, and jobs that nobody waits for."""

import asyncio
import json
import os
import sys

import pytest
from tests.explain.server.fake_worker import COMMAND

from permalign.explain.server.rate_limit import TooManyRequestsError
from permalign.explain.server.worker import WorkerDiedError
from permalign.explain.server.worker_messages import Job
from permalign.explain.server.worker_pool import AnswerTimeoutError, WorkerPool


def job(sentence="answer"):
    return Job("explain", {"sentence": sentence})


def in_pool(check, size=1, max_pending=8, timeout_seconds=30.0):
    """Run a check with a pool that is closed afterwards."""

    async def run():
        pool = WorkerPool(COMMAND, b"settings\n", size, max_pending, timeout_seconds)
        await pool.start()
        try:
            return await check(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


def test_one_process_answers_all_jobs_even_if_some_fail():
    async def check(pool):
        first = await pool.run(job())
        assert first.status == 200
        failed = await pool.run(job("fail"))
        assert failed.status == 500
        assert b"secret" not in failed.body
        assert await pool.run(job("print")) == first
        assert await pool.run(job()) == first

    in_pool(check)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux enforces the limit")
def test_a_job_that_takes_too_much_memory_is_refused():
    async def check(pool):
        refused = await pool.run(job("allocate"))
        assert refused.status == 503
        assert b"more memory than a request may use; try a shorter sentence" in refused.body
        assert (await pool.run(job())).status == 200

    in_pool(check)


def test_a_process_that_dies_is_replaced():
    async def check(pool):
        first = await pool.run(job())
        with pytest.raises(WorkerDiedError):
            await pool.run(job("die"))
        second = await pool.run(job())
        assert second.status == 200
        assert second.body != first.body

    in_pool(check)


def test_a_job_that_takes_too_long_is_ended_and_others_are_answered():
    async def check(pool):
        slow = asyncio.create_task(pool.run(job("sleep 600")))
        await asyncio.sleep(0)
        others = [(await pool.run(job())).body for _ in range(3)]
        assert len(set(others)) == 1  # the process that is free
        with pytest.raises(AnswerTimeoutError):
            await slow
        assert (await asyncio.gather(pool.run(job()), pool.run(job())))[0].status == 200

    in_pool(check, size=2, timeout_seconds=5.0)


def test_a_job_that_nobody_waits_for_is_ended():
    async def check(pool):
        first = await pool.run(job())
        abandoned = asyncio.create_task(pool.run(job("sleep 600")))
        await asyncio.sleep(0.1)
        abandoned.cancel()
        assert (await pool.run(job())).body != first.body

    in_pool(check)


def test_a_job_that_nobody_waits_for_may_soon_end_by_itself():
    async def check(pool):
        first = await pool.run(job())
        abandoned = asyncio.create_task(pool.run(job("sleep 0.2")))
        await asyncio.sleep(0.1)
        abandoned.cancel()
        assert await pool.run(job()) == first

    in_pool(check)


def test_a_job_that_waits_in_vain_never_begins():
    async def check(pool):
        slow = asyncio.create_task(pool.run(job("sleep 0.5")))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(pool.run(job("die")))
        await asyncio.sleep(0.1)
        waiting.cancel()
        assert await pool.run(job()) == await slow

    in_pool(check)


def test_only_so_many_jobs_may_wait():
    async def check(pool):
        pending = [asyncio.create_task(pool.run(job("sleep 0.5"))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequestsError):
            await pool.run(job())
        await asyncio.gather(*pending)
        assert (await pool.run(job())).status == 200

    in_pool(check, max_pending=2)


def test_a_closed_pool_leaves_no_process_behind():
    async def check(pool):
        process = json.loads((await pool.run(job())).body)["process"]
        os.kill(process, 0)
        sleeping = asyncio.create_task(pool.run(job("sleep 600")))
        await asyncio.sleep(0.1)
        return process, sleeping

    process, sleeping = in_pool(check)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert sleeping.done()
