"""Requests for predictions that wait at the same time, answered together."""

import asyncio
import json
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from permalign.explain.server.worker import WorkerDiedError
from permalign.explain.server.worker_messages import Answer, Job
from permalign.explain.server.worker_pool import WorkerPool

OPERATION = "predict"
"""The operation whose requests are joined."""

MAX_WORDS = 30
"""The length of the longest sentence that is predicted together with those of other requests: a search lasts as long as
that of its longest sentence."""


class JointPredictions:
    """Joins requests for predictions that wait for a worker process: a single job answers all of them.

    To search for the outputs of sixteen sentences at once takes hardly longer than to search for one. So while all
    processes are busy, requests for outputs of the same model and the same beam become one job. It begins as soon as a
    process is free, with the requests that have come until then; a request that finds a free process does not wait.

    If a joint job is refused or its process dies, each of its requests becomes a job of its own, so that none is
    refused because of another. If it takes too long, all of them are refused, so long sentences are not joined.

    Args:
        pool: the worker processes.
        max_sentences: how many sentences a job may contain.
    """

    def __init__(self, pool: WorkerPool, max_sentences: int) -> None:
        self._pool, self._max_sentences = pool, max_sentences
        self._waiting: dict[str, _JointJob] = {}

    async def run(self, job: Job) -> Answer:
        """Answer a job, together with others if it asks for predictions.

        Raises:
            TooManyRequestsError: too many requests are pending.
            AnswerTimeoutError: the job was not done in time.
            WorkerDiedError: the process ended unexpectedly.
        """
        if job.operation != OPERATION or any(len(text.split()) > MAX_WORDS for text in _sentences(job)):
            return await self._pool.run(job)
        with self._pool.place():
            joint = self._find_or_begin(job)
            joint.requests.append(job)
            try:
                answer = await asyncio.shield(joint.task)
            except asyncio.CancelledError:  # the client is gone
                if joint.leave(job):
                    self._close(joint)
                raise
            except WorkerDiedError:
                if len(joint.requests) == 1:
                    raise
            else:
                if answer.status == 200 or len(joint.requests) == 1:
                    return joint.share(job, answer)
            return await self._pool.run_when_free(lambda: job)

    def _find_or_begin(self, job: Job) -> "_JointJob":
        """Return the job that a request joins: one that waits for a process and has room, or a new one."""
        kind = json.dumps({**job.request, "sentences": None}, sort_keys=True)
        joint = self._waiting.get(kind)
        if joint is None or joint.num_sentences + len(_sentences(job)) > self._max_sentences:
            joint = self._waiting[kind] = _JointJob(kind)
            joint.task = asyncio.ensure_future(self._pool.run_when_free(partial(self._begin, joint)))
            joint.task.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )  # maybe nobody waits
        return joint

    def _begin(self, joint: "_JointJob") -> Job:
        """Return what a process computes for a job, now that it is free."""
        self._close(joint)
        return joint.begin()

    def _close(self, joint: "_JointJob") -> None:
        """Let nobody join a job any more."""
        if self._waiting.get(joint.kind) is joint:
            del self._waiting[joint.kind]


@dataclass
class _JointJob:
    """A job that answers several requests.

    Attributes:
        kind: what its requests have in common.
        requests: what was asked for, in the order of the sentences.
        has_begun: whether a process has the job, so that its sentences stay as they are.
        num_gone: how many of the requests nobody waits for any more, since it has begun.
        task: computes the answers to all requests.
    """

    kind: str
    requests: list[Job] = field(default_factory=list)
    has_begun: bool = False
    num_gone: int = 0
    task: "asyncio.Future[Answer]" = field(init=False)

    @property
    def num_sentences(self) -> int:
        return sum(len(_sentences(job)) for job in self.requests)

    def begin(self) -> Job:
        """Return the job for a process."""
        self.has_begun = True
        sentences = list(chain.from_iterable(map(_sentences, self.requests)))
        return Job(OPERATION, {**self.requests[0].request, "sentences": sentences})

    def leave(self, request: Job) -> bool:
        """Forget a request, and end the job if it was the last one; return whether it was."""
        if self.has_begun:
            self.num_gone += 1
        else:
            self.requests = [other for other in self.requests if other is not request]
        is_last = self.num_gone == len(self.requests)
        if is_last:
            self.task.cancel()
        return is_last

    def share(self, request: Job, answer: Answer) -> Answer:
        """Return the part of the answer that belongs to a request."""
        if len(self.requests) == 1:
            return answer
        place = next(place for place, other in enumerate(self.requests) if other is request)
        first = sum(len(_sentences(job)) for job in self.requests[:place])
        predictions = json.loads(answer.body)[first : first + len(_sentences(request))]
        body = json.dumps(predictions, ensure_ascii=False, separators=(",", ":")).encode()
        return Answer(answer.status, answer.media_type, body)


def _sentences(job: Job) -> list[str]:
    sentences: list[str] = job.request["sentences"]
    return sentences
