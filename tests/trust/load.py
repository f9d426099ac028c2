"""Sends requests from many connections to the explorer on this machine, and counts and times the answers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles

import httpx
import psutil
from tests.training.small_run import SILENT, options, write_data

from permalign.training.launch import train

LETTERS = "abcdef"


def load(folder: Path, connections: int, seconds: float) -> dict[str, object]:
    """Ask for predictions of different sentences of nine words.

    Returns:
        The counts of answers by status, answers a second, median and 99th percentile in milliseconds of those with
        status 200, and the memory of all processes of the server in MB before, in the middle and at the end.
    """
    run = folder / "served"
    train(options(write_data(folder)), run, display=SILENT)
    command = [sys.executable, "-m", "permalign.cli", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as server:
        try:
            assert server.stderr is not None
            lines = iter(server.stderr.readline, "")
            address = next(line for line in lines if "http://" in line).split(" at ")[1].split()[0]
            return asyncio.run(_flood(address, run.name, connections, seconds, psutil.Process(server.pid)))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


async def _flood(
    address: str, run: str, connections: int, seconds: float, server: psutil.Process
) -> dict[str, object]:
    statuses: Counter[object] = Counter()
    times: list[float] = []
    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        await _ask(client, run, "a b c", Counter(), [])  # the model is loaded
        memory, end = [_megabytes(server)], time.monotonic() + seconds

        async def one(number: int) -> None:
            count = 0
            while time.monotonic() < end:
                words = [LETTERS[(number * 7 + count * (place + 1) + place) % 6] for place in range(9)]
                words[0] = f"{number}x{count}"  # so that no answer comes from the cache
                await _ask(client, run, " ".join(words), statuses, times)
                count += 1

        async def watch() -> None:
            await asyncio.sleep(seconds / 2)
            memory.append(_megabytes(server))

        await asyncio.gather(watch(), *(one(number) for number in range(connections)))
    memory.append(_megabytes(server))
    cuts = quantiles(times, n=100) if len(times) > 1 else [0.0] * 99
    return {
        "connections": connections,
        "seconds": seconds,
        "statuses": {str(status): count for status, count in sorted(statuses.items(), key=str)},
        "answers a second": round(len(times) / seconds, 1),
        "median ms": round(1000 * cuts[49]),
        "99th percentile ms": round(1000 * cuts[98]),
        "memory MB": memory,
    }


async def _ask(
    client: httpx.AsyncClient, run: str, sentence: str, statuses: Counter[object], times: list[float]
) -> None:
    started = time.monotonic()
    try:
        answer = await client.post("/api/predict", json={"run": run, "sentences": [sentence]})
    except httpx.HTTPError as error:
        statuses[type(error).__name__] += 1
        return
    statuses[answer.status_code] += 1
    if answer.status_code == 200:
        times.append(time.monotonic() - started)
    elif answer.status_code == 429:
        await asyncio.sleep(float(answer.headers.get("retry-after", 1)))


def _megabytes(server: psutil.Process) -> int:
    processes = [server, *server.children(recursive=True)]
    return round(sum(process.memory_info().rss for process in processes) / 2**20)


if __name__ == "__main__":
    print(json.dumps(load(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])), indent=2))
