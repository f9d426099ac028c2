"""Requests for predictions that are answered together: which are, what each gets, and what happens if one fails."""

import asyncio
import json

import pytest
from tests.explain.server.fake_worker import command

from permalign.explain.server.joint_predictions import MAX_WORDS, JointPredictions
from permalign.explain.server.rate_limit import TooManyRequestsError
from permalign.explain.server.worker import WorkerDiedError
from permalign.explain.server.worker_messages import Job
from permalign.explain.server.worker_pool import AnswerTimeoutError, WorkerPool

# It answers with the sentences of a job in capitals, and how many the job had; "wait" makes it take a moment, "bad"
# makes it refuse the whole job, "die" ends it, "sleep" takes too long.
COMMAND = command("""
    def answer(job):
        sentences = job.request.get("sentences", [])
        if "bad" in sentences:
            return Answer.failure(422, "bad sentence.")
        if "die" in sentences:
            os._exit(1)
        if "sleep" in sentences:
            time.sleep(600)
        if "wait" in sentences:
            time.sleep(0.3)
        answers = [[text.upper(), len(sentences), job.request["beam"]] for text in sentences]
        return Answer(200, "application/json", json.dumps(answers).encode())
""")


def request(*sentences, run="run", beam=5):
    return Job("predict", {"run": run, "checkpoint": "best", "sentences": list(sentences), "beam": beam})


def with_predictions(check, max_sentences=4, max_pending=16, timeout_seconds=30.0):
    """Run a check with joint predictions of one process, which is busy for a moment when the check begins."""

    async def run():
        pool = WorkerPool(COMMAND, b"settings\n", 1, max_pending, timeout_seconds)
        await pool.start()
        predictions = JointPredictions(pool, max_sentences)
        try:
            await predictions.run(request("a"))  # the process has started
            busy = asyncio.create_task(predictions.run(request("wait")))
            await asyncio.sleep(0.05)
            await check(predictions)
            await busy
        finally:
            await pool.close()

    asyncio.run(run())


async def answers(predictions, *requests):
    results = await asyncio.gather(*(predictions.run(one) for one in requests))
    assert all(result.media_type == "application/json" for result in results)
    return [json.loads(result.body) for result in results]


def test_requests_that_wait_are_answered_together_and_each_gets_its_own_part():
    async def check(predictions):
        assert await answers(predictions, request("ä"), request("b", "c"), request("d")) == [
            [["Ä", 4, 5]],
            [["B", 4, 5], ["C", 4, 5]],
            [["D", 4, 5]],
        ]
        assert await answers(predictions, request("e")) == [[["E", 1, 5]]]  # the process is free again

    with_predictions(check)


def test_only_requests_for_the_same_model_and_beam_are_joined():
    async def check(predictions):
        found = await answers(
            predictions, request("a"), request("b", run="other"), request("c", beam=1), request("d")
        )
        assert [[size for _, size, _ in answer] for answer in found] == [[2], [1], [1], [2]]
        assert found[2] == [["C", 1, 1]]

    with_predictions(check)


def test_a_job_has_no_more_sentences_than_a_request_may_have():
    async def check(predictions):
        found = await answers(predictions, *(request(*pair) for pair in ("ab", "cd", "ef", "gh", "ij")))
        assert [answer[0][1] for answer in found] == [4, 4, 4, 4, 2]

    with_predictions(check)


def test_long_sentences_and_other_operations_have_jobs_of_their_own():
    async def check(predictions):
        long = " ".join("x" * (MAX_WORDS + 1))
        found = await answers(predictions, request("a"), request(long), request("b"))
        assert [answer[0][1] for answer in found] == [2, 1, 2]
        other = Job("explain", {"sentence": "a"})
        assert (await predictions.run(other)).body == b"[]"

    with_predictions(check)


@pytest.mark.parametrize("word", ["bad", "die"])
def test_a_request_that_fails_takes_no_other_with_it(word):
    async def check(predictions):
        tasks = [asyncio.create_task(predictions.run(request(text))) for text in ("a", word, "b")]
        first, failed, last = await asyncio.gather(*tasks, return_exceptions=True)
        assert [json.loads(first.body), json.loads(last.body)] == [[["A", 1, 5]], [["B", 1, 5]]]
        assert isinstance(failed, WorkerDiedError) if word == "die" else failed.status == 422

    with_predictions(check)


def test_a_failure_is_not_computed_twice():
    async def check(predictions):
        assert (await predictions.run(request("bad"))).status == 422
        with pytest.raises(WorkerDiedError):
            await predictions.run(request("die"))

    with_predictions(check)


def test_a_client_that_leaves_takes_no_other_with_it():
    async def check(predictions):
        leaving, staying = (asyncio.create_task(predictions.run(request(text))) for text in "ab")
        await asyncio.sleep(0.05)
        leaving.cancel()
        assert json.loads((await staying).body) == [["B", 1, 5]]

    with_predictions(check)


def test_a_request_can_be_asked_again_after_all_clients_have_left():
    async def check(predictions):
        leaving = asyncio.create_task(predictions.run(request("a")))
        await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.sleep(0)
        assert await answers(predictions, request("b")) == [[["B", 1, 5]]]

    with_predictions(check)


def test_a_job_in_progress_ends_when_its_last_client_has_left():
    async def check(predictions):
        clients = [asyncio.create_task(predictions.run(request(text))) for text in ("sleep", "a")]
        await asyncio.sleep(0.6)  # the job has begun
        for client in clients:
            client.cancel()
        assert await answers(predictions, request("b")) == [[["B", 1, 5]]]

    with_predictions(check)


def test_a_job_that_takes_too_long_is_ended():
    async def check(predictions):
        with pytest.raises(AnswerTimeoutError):
            await predictions.run(request("sleep"))
        assert await answers(predictions, request("a")) == [[["A", 1, 5]]]

    with_predictions(check, timeout_seconds=2.0)


def test_every_request_counts_among_those_that_wait():
    async def check(predictions):
        waiting = [asyncio.create_task(predictions.run(request(text))) for text in "ab"]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequestsError):
            await predictions.run(request("c"))
        assert [json.loads(answer.body) for answer in await asyncio.gather(*waiting)] == [
            [["A", 2, 5]],
            [["B", 2, 5]],
        ]

    with_predictions(check, max_pending=3)
