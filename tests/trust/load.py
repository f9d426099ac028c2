"""Sends requests from many connections to the explorer on this machine, and counts and times the answers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import product
from statistics import quantiles
from urllib.parse import urlsplit

import httpx
import psutil

MODEL = "arithmetic"
"""A model of the package, in the size in which it is used."""

MAX_GROWTH = 0.1
"""By how much the memory may grow in the second half of the time, as a share."""

MAX_OTHER_WORK = 0.1
"""How busy the processors may be with something else before speed says nothing, as a share."""


MAX_SECONDS_TO_END = 3.0
"""How long the server may take to end on Ctrl-C."""


@dataclass(frozen=True)
class Load:
    """What a server did under load.

    Attributes:
        connections: how many connections asked at the same time.
        seconds: for how long.
        statuses: how many answers had each status; errors of a connection are counted by their names.
        answers_a_second: how many answers had status 200, every second.
        median: the median time to such an answer, in milliseconds.
        slowest: the 99th percentile of this time, in milliseconds.
        memory: the memory of all processes of the server in MB before, in the middle and at the end.
        other_work: how busy the processors were with something else before and after, the larger of both shares.
    """

    connections: int
    seconds: float
    statuses: dict[str, int]
    answers_a_second: float
    median: int
    slowest: int
    memory: tuple[int, int, int]
    other_work: float

    def faults(self, min_answers_a_second: float = 0.0) -> list[str]:
        """Return the promises that are broken; a busy machine may be slow."""
        name = f"load of {self.connections} connections"
        faults = []
        errors = {status: count for status, count in self.statuses.items() if status not in ("200", "429")}
        if errors:
            faults.append(f"{name}: answers other than 200 and 429: {errors}")
        _, middle, end = self.memory
        if end > middle * (1 + MAX_GROWTH):
            faults.append(f"{name}: the memory grew from {middle} to {end} MB in the second half")
        if self.answers_a_second < min_answers_a_second and self.other_work <= MAX_OTHER_WORK:
            faults.append(f"{name}: {self.answers_a_second} answers a second, not {min_answers_a_second:.0f}")
        return faults

    def __str__(self) -> str:
        return (
            f"{self.connections} connections for {self.seconds:.0f} s: {self.answers_a_second} answers a second to "
            f"sentences of nine words, median {self.median} ms, 99th percentile {self.slowest} ms; answers by status "
            f"{self.statuses}; memory of the server {' → '.join(map(str, self.memory))} MB; processors "
            f"{self.other_work:.0%} busy with other work"
        )


def load(connections: int, seconds: float) -> Load:
    """Ask for predictions of different sentences of nine words, on as many connections, for some time."""
    before = _processor_use()
    with _server() as (server, address):
        statuses, times, memory = asyncio.run(
            _flood(address, connections, seconds, psutil.Process(server.pid))
        )
    cuts = quantiles(times, n=100) if len(times) > 1 else [0.0] * 99
    return Load(
        connections,
        seconds,
        {str(status): count for status, count in sorted(statuses.items(), key=str)},
        round(len(times) / seconds, 1),
        round(1000 * cuts[49]),
        round(1000 * cuts[98]),
        memory,
        max(before, _processor_use()),
    )


@dataclass(frozen=True)
class Interruption:
    """How a server ended on Ctrl-C.

    Attributes:
        seconds: how long it took to end.
        status: the status of the answer to the request that was in progress.
        other_work: how busy the processors were with something else, as a share.
    """

    seconds: float
    status: int
    other_work: float

    def faults(self) -> list[str]:
        """Return the promises that are broken; a busy machine may be slow."""
        faults = []
        if self.seconds > MAX_SECONDS_TO_END and self.other_work <= MAX_OTHER_WORK:
            faults.append(f"Ctrl-C: the server ended after {self.seconds} s, not {MAX_SECONDS_TO_END:.0f}")
        if self.status != 503:
            faults.append(f"Ctrl-C: the request in progress was answered with {self.status}, not 503")
        return faults

    def __str__(self) -> str:
        return (
            f"the server ended {self.seconds} s after Ctrl-C; the request in progress was answered with status "
            f"{self.status}; processors {self.other_work:.0%} busy with other work"
        )


def interrupted() -> Interruption:
    """Stop the explorer by Ctrl-C while it computes an answer that takes long."""
    before = _processor_use()
    sentence = "1"
    for _ in range(14):
        sentence = f"( {sentence} + 1 )"
    body = json.dumps({"run": MODEL, "sentence": sentence, "count": 16, "seed": 0})
    with _server() as (server, address), ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=address, timeout=60, verify=False))
        client.post("/api/predict", json={"run": MODEL, "sentences": ["1"]}).raise_for_status()
        connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
        stack.callback(connection.close)
        connection.request("POST", "/api/samples", body, {"content-type": "application/json"})
        time.sleep(0.5)
        started = time.monotonic()
        server.send_signal(signal.SIGINT)
        server.wait(60)
        seconds = time.monotonic() - started
        return Interruption(round(seconds, 1), connection.getresponse().status, before)


@contextmanager
def _server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the explorer; yields its process and its address."""
    command = [sys.executable, "-m", "permalign", "serve", MODEL, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as server:
        try:
            assert server.stderr is not None
            lines = iter(server.stderr.readline, "")
            yield server, next(line for line in lines if "http://" in line).split(" at ")[1].split()[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def _processor_use() -> float:
    """Return how busy the processors are now, while the server does not run."""
    return psutil.cpu_percent(interval=2.0) / 100


def _expressions() -> Iterator[str]:
    """All expressions of nine words; as they are different, no answer comes from the cache."""
    for one, two, three, first, second in product(*[range(10)] * 3, "+-*/", "+-*/"):
        yield f"( ( {one} {first} {two} ) {second} {three} )"
        yield f"( {one} {first} ( {two} {second} {three} ) )"


async def _flood(
    address: str, connections: int, seconds: float, server: psutil.Process
) -> tuple[Counter[object], list[float], tuple[int, int, int]]:
    """Return answers by status, the times of those with status 200, and the server's memory at three times."""
    statuses: Counter[object] = Counter()
    times: list[float] = []
    expressions = _expressions()
    async with AsyncExitStack() as stack:
        # a client of its own for each connection: one with many looks through all of them for every request
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=address, timeout=60, verify=False))
            for _ in range(connections)
        ]
        ask_once = (_ask(client, MODEL, next(expressions), Counter(), []) for client in clients[:32])
        await asyncio.gather(*ask_once)  # so many that all worker processes are started
        before = await _settled_megabytes(server)
        end = time.monotonic() + seconds

        async def one(client: httpx.AsyncClient) -> None:
            for expression in expressions:
                refused = True
                while refused:
                    if time.monotonic() > end:
                        return
                    refused = await _ask(client, MODEL, expression, statuses, times) == 429

        async def watch() -> int:
            await asyncio.sleep(seconds / 2)
            return _megabytes(server)

        middle, *_ = await asyncio.gather(watch(), *map(one, clients))
    assert middle is not None
    return statuses, times, (before, middle, _megabytes(server))


async def _ask(
    client: httpx.AsyncClient, run: str, sentence: str, statuses: Counter[object], times: list[float]
) -> int | None:
    """Ask for a prediction, and return the status of the answer; None if the connection failed."""
    started = time.monotonic()
    try:
        answer = await client.post("/api/predict", json={"run": run, "sentences": [sentence]})
    except httpx.HTTPError as error:
        statuses[type(error).__name__] += 1
        return None
    statuses[answer.status_code] += 1
    if answer.status_code == 200:
        times.append(time.monotonic() - started)
    elif answer.status_code == 429:
        await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
    return answer.status_code


async def _settled_megabytes(server: psutil.Process) -> int:
    """Return the memory of the server's processes when all of them have loaded what they need."""
    last, now = 0, _megabytes(server)
    while abs(now - last) > 0.01 * now:
        await asyncio.sleep(3.0)
        last, now = now, _megabytes(server)
    return now


def _megabytes(server: psutil.Process) -> int:
    processes = [server, *server.children(recursive=True)]
    return round(sum(process.memory_info().rss for process in processes) / 2**20)


if __name__ == "__main__":
    print(load(int(sys.argv[1]), float(sys.argv[2])) if sys.argv[1:] else interrupted())
