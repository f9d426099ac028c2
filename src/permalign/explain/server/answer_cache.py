"""The answers that were given last."""

from collections import OrderedDict

from permalign.explain.server.worker_messages import Answer, Job


class AnswerCache:
    """Keeps the answers given last: the same request always has the same answer.

    Args:
        max_bytes: how large the answers may be together.

    >>> cache, job = AnswerCache(), Job("explain", {"sentence": "a b"})
    >>> cache.keep(job, Answer(200, "application/json", b"{}"))
    >>> cache.get(job).body
    b'{}'
    """

    def __init__(self, max_bytes: int = 16 * 2**20) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()

    def get(self, job: Job) -> Answer | None:
        """Return the answer to a job; None if it is not known any more."""
        return self._answers.get(job.to_line())

    def keep(self, job: Job, answer: Answer) -> None:
        """Remember an answer, unless it says that something failed; the oldest ones are forgotten."""
        if answer.status != 200:
            return
        known = self._answers.pop(job.to_line(), None)
        self._answers[job.to_line()] = answer
        self._bytes += len(answer.body) - (0 if known is None else len(known.body))
        while self._bytes > self._max_bytes:
            _, oldest = self._answers.popitem(last=False)
            self._bytes -= len(oldest.body)
