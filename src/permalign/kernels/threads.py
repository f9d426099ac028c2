"""One sentence per thread, with as many threads as torch uses.

The compiled kernels release the interpreter's lock, so plain threads run them in parallel. There is one setting,
``torch.set_num_threads`` (or ``OMP_NUM_THREADS``): torch's own threads are idle while a kernel runs, and these threads
are idle while torch works (torch's OpenMP threads may spin for a moment after a matrix product; see docs/kernels.md).
Each sentence is computed by one thread from beginning to end, or, if it is long and the kernel allows it, each part of
it. So results do not depend on the number of threads.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import torch

LONG = 100
"""The length from which on a sentence is divided into parts, where a kernel can compute parts."""
PARTS = 8

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=_forget_pool
    )  # threads do not survive a fork; the child makes new ones


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="permalign")
    return _pool


def num_parts(max_length: int) -> int:
    """The number of parts that each sentence of a batch is divided into, if a kernel can compute parts.

    It depends on nothing but the length, and so do the results.
    """
    return PARTS if max_length >= LONG else 1


def for_each_sentence(kernel: Callable[..., None], batch: int, *arrays: Any) -> None:
    """Call ``kernel(b, *arrays)`` for every sentence b of the batch, on all threads torch may use."""
    helpers = min(torch.get_num_threads(), batch) - 1
    if helpers < 1:
        for item in range(batch):
            kernel(item, *arrays)
        return
    remaining, lock = iter(range(batch)), Lock()

    def work() -> None:
        while True:
            with lock:
                item = next(remaining, None)
            if item is None:
                return
            kernel(item, *arrays)

    futures = [_get_pool().submit(work) for _ in range(helpers)]
    work()
    for future in futures:
        if not future.cancel():  # a helper that has not begun by now has no sentence left to compute
            future.result()
