"""How much one request may ask for, and how many requests are accepted."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of a server: generous for a person, tight for a flood of requests.

    Attributes:
        max_length: the largest number of words in a sentence, and in an output to explain.
        max_characters: the largest number of characters in a sentence, and in an output to explain.
        max_sentences: how many sentences one request for predictions may contain.
        max_samples: how many samples one request may ask for.
        max_body_bytes: the largest size of a request's body.
        max_operations: how many operations the exact sums behind an answer may take, estimated before they begin.
        max_memory_bytes: how much memory a worker process may allocate for one answer.
        num_workers: how many processes run models.
        timeout_seconds: how long a client waits for an answer at most, the time in the queue included.
        max_pending: how many requests may wait for a model at the same time.
        request_seconds: how long a request may take to arrive, from its first byte to its last.
        answer_seconds: how long a client may take to read what the system does not keep of an answer.
        max_unsent_bytes: how large all answers that wait for their clients may be together.
        burst: how many requests to the API a client may send at once.
        requests_per_second: how many requests a client may send every second after such a burst.
    """

    max_length: int = 60
    max_characters: int = 4000
    max_sentences: int = 16
    max_samples: int = 16
    max_body_bytes: int = 65_536
    max_operations: float = 1.5e9  # about ten seconds on one core
    max_memory_bytes: int = 2 * 2**30
    num_workers: int = 2
    timeout_seconds: float = 20.0
    max_pending: int = 128
    request_seconds: float = 10.0
    answer_seconds: float = 20.0
    max_unsent_bytes: int = 128 * 2**20
    burst: float = 200.0
    requests_per_second: float = 100.0
