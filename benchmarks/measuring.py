"""How time and memory are measured, and what a measurement is."""

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
    """One number, what it says, and what it is meant to reach.

    Attributes:
        name: a short handle.
        what: one line for a reader.
        measured: the number.
        unit: what it is counted in; ``x`` for a ratio.
        goal: whether the target is a floor, a ceiling, or there is none.
        target: the floor or ceiling.
        details: the raw seconds and megabytes behind the number, and how far outputs differ.
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
        """Whether the target is reached; without a target there is nothing to miss."""
        if self.target is None:
            return True
        return self.measured >= self.target if self.goal == "at least" else self.measured <= self.target

    def as_json(self) -> dict[str, Any]:
        """The measurement as it is kept, four significant digits to a number."""
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
    """To four significant digits."""
    return float(f"{number:.4g}")


def best_seconds(calls: dict[str, tuple[Callable[[], object], int]]) -> dict[str, float]:
    """The fastest of several calls of each contestant, who take turns so that a busy moment hits all of them.

    Args:
        calls: for every contestant, what to call and how often. Each takes its calls in as many turns as the
            contestant with the fewest.
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


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors, relative where entries are larger than one."""
    return ((one - other).abs() / other.abs().clamp(min=1)).max().item() if one.numel() else 0.0


def peak_bytes() -> int:
    """The most memory this process has had at once.

    From /proc where there is one: what ``getrusage`` reports there also counts the parent's memory, shared for the
    moment between fork and exec.
    """
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RUSAGE_UNIT


def current_bytes() -> int:
    """The memory this process has now (where /proc does not say: the most it has had)."""
    return _status("VmRSS") or peak_bytes()


_RUSAGE_UNIT = 1 if sys.platform == "darwin" else 1024


def _status(key: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:")), None)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
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
