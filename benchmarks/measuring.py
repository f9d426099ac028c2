"""How time and memory are measured, and what is recorded of a measurement."""

import gc
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numba
import torch
from torch import Tensor

ROOT = Path(__file__).parents[1]
MEGABYTE = 1e6


@dataclass(frozen=True)
class Measurement:
    """One measured number, what it means, and its target.

    Attributes:
        name: a short name, by which programs find it.
        what: what was measured, in one line of a table.
        measured: the number.
        unit: the unit of the number; ``x`` for a ratio.
        goal: whether the target is a lower bound, an upper bound, or there is none.
        target: the lower or upper bound.
        details: the seconds and megabytes behind the number, and by how much outputs differ.
    """

    name: str
    what: str
    measured: float
    unit: str
    goal: Literal["at least", "at most", "none"] = "none"
    target: float | None = None
    details: dict[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether the target is reached; true without a target."""
        if self.target is None:
            return True
        return self.measured >= self.target if self.goal == "at least" else self.measured <= self.target

    def as_json(self) -> dict[str, Any]:
        """The measurement as it is saved, with four significant digits for each number."""
        return {
            "name": self.name,
            "what": self.what,
            "measured": rounded(self.measured),
            "unit": self.unit,
            "goal": self.goal,
            "target": self.target,
            "met": self.met,
            "details": {name: rounded(value) for name, value in self.details.items()},
        }


def rounded(number: float) -> float:
    """The number, rounded to four significant digits."""
    return float(f"{number:.4g}")


def best_seconds(calls: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """The seconds of the fastest of several calls of each function.

    The functions take turns, so that a moment in which the machine is busy affects all of them. There are as many
    rounds as the function with the fewest calls has; the calls of the others are spread over these rounds.

    Args:
        calls: by name, the functions to call and how often to call each.
    """
    rounds = min(times for _, times in calls.values())
    best = dict.fromkeys(calls, float("inf"))
    for turn in range(rounds):
        for name, (call, times) in calls.items():
            for _ in range(times * (turn + 1) // rounds - times * turn // rounds):
                gc.collect()
                start = perf_counter()
                call()
                best[name] = min(best[name], perf_counter() - start)
    return best


def difference(actual: Tensor, expected: Tensor) -> float:
    """The largest difference between two tensors, relative where the expected entry is larger than one."""
    if not actual.numel():
        return 0.0
    return ((actual - expected).abs() / expected.abs().clamp(min=1)).max().item()


def peak_bytes() -> int:
    """The peak memory of this process.

    It is read from /proc where that exists: there, ``getrusage`` also counts the memory of the parent process, which is
    shared for a moment between fork and exec.
    """
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RUSAGE_UNIT


def current_bytes() -> int:
    """The memory that this process has now; its peak memory where there is no /proc."""
    return _status("VmRSS") or peak_bytes()


_RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024


def _status(key: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:")), None)


def machine() -> dict[str, Any]:
    """The machine, the versions and the commit that the numbers were measured on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short", "HEAD")
        + ("+" if _git("status", "--porcelain", "src") else ""),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "system": platform.system(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answer.stdout.strip()
