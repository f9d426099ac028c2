"""How threads wait for work: passively, so that several programs on one machine do not take each other's cores.

By default, the OpenMP threads of torch spin for a while after every operation. That saves microseconds if a program has
the machine for itself. If two programs have more threads than there are cores, the spinning threads of one keep the
other from working. The policy has to be set before torch is imported, so the command line sets it first of all. From
Python, set ``OMP_WAIT_POLICY=PASSIVE`` in the environment. (The threads of compiled kernels are plain threads, which
never spin.)
"""

import os

POLICY = "OMP_WAIT_POLICY"
SPIN_SETTINGS = (POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""The environment variables by which GNU's and Intel's OpenMP are told how to wait."""


def use_passive_threads() -> None:
    """Let the threads of OpenMP wait without spinning, unless the user chose otherwise."""
    if not any(setting in os.environ for setting in SPIN_SETTINGS):
        os.environ[POLICY] = "PASSIVE"
        os.environ["KMP_BLOCKTIME"] = (
            "0"  # for builds of torch with Intel's OpenMP, which has a setting of its own
        )


def wait_policy() -> str:
    """How the threads of OpenMP wait, by the environment."""
    chosen = {setting: os.environ[setting] for setting in SPIN_SETTINGS if setting in os.environ}
    return ", ".join(f"{setting}={value}" for setting, value in chosen.items()) or "not set (threads spin)"


def num_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def thread_warning() -> str | None:
    """A warning if the environment asks for more threads than there are cores; None if it does not."""
    cores = num_cores()
    for setting in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        value = os.environ.get(setting, "")
        if value.isdigit() and int(value) > cores:
            return (
                f"{setting} is {value}, but this process has {cores} {'core' if cores == 1 else 'cores'}: threads "
                f"will wait for each other. Set {setting}={cores}, or less if several programs run at once."
            )
    return None
