"""What the server and its worker processes say to each other."""

import json
from dataclasses import dataclass
from typing import Any

READY = b"ready\n"
"""What a worker says when it has started."""


@dataclass(frozen=True)
class Job:
    """A request for a worker: one line of JSON.

    Attributes:
        operation: the name of an operation of the API.
        request: the fields of the request.
    """

    operation: str
    request: dict[str, Any]

    def to_line(self) -> bytes:
        """Return the job as one line.

        >>> Job.from_line(Job("explain", {"sentence": "a b"}).to_line())
        Job(operation='explain', request={'sentence': 'a b'})
        """
        return json.dumps([self.operation, self.request]).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> "Job":
        """Read what `to_line` wrote."""
        return Job(*json.loads(line))


@dataclass(frozen=True)
class Answer:
    """The response to a request.

    Attributes:
        status: its HTTP status.
        media_type: what the body is.
        body: its bytes. In a message they follow a line of JSON with the status, the media type and their number.
    """

    status: int
    media_type: str
    body: bytes

    @staticmethod
    def failure(status: int, reason: str) -> "Answer":
        """Return the response to a request that failed.

        >>> Answer.failure(404, "there is no such run.").body
        b'{"error": "There is no such run."}'
        """
        error = {"error": reason[:1].upper() + reason[1:]}
        return Answer(status, "application/json", json.dumps(error).encode())

    def header(self) -> bytes:
        """Return the line that precedes the body."""
        return json.dumps([self.status, self.media_type, len(self.body)]).encode() + b"\n"
