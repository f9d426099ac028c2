"""What permalign finds on this machine: versions, threads, extras, plug-ins, data, and what to do about them.

>>> print(doctor())  # doctest: +SKIP
"""

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from permalign import __version__
from permalign.openmp import num_cores, thread_warning, wait_policy
from permalign.plugins import REGISTRIES
from permalign.tasks.data_folder import data_root
from permalign.tasks.download_catalogue import DOWNLOADS

PACKAGES = ("torch", "numpy", "numba", "accelerate", "pydantic", "safetensors", "transformers")
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)[^;]*;.*extra == ['\"](?P<extra>[A-Za-z0-9._-]+)['\"]")


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        findings: by topic, the findings by name.
        advice: what to do, one sentence each; empty if there is nothing to do.
    """

    findings: dict[str, dict[str, str]]
    advice: tuple[str, ...]

    def __str__(self) -> str:
        """The findings as text."""
        lines = []
        for topic, found in self.findings.items():
            width = max(map(len, found), default=0)
            lines += [topic, *(f"  {name:{width}}  {value}" for name, value in found.items()), ""]
        lines += ["advice", *(f"  - {sentence}" for sentence in self.advice or ("Nothing to do.",))]
        return "\n".join(lines)


def doctor() -> Diagnosis:
    """Examine the installation; nothing is changed, and the network is not used."""
    threads, thread_advice = _threads()
    kernels, kernel_advice = _kernels()
    data, data_advice = _data()
    findings = {
        "versions": _versions(),
        "threads": threads,
        "kernels": kernels,
        "extras": dict(_extras()),
        "plug-ins": dict(_plugins()) or {"none": "see the how-to guide on plug-ins"},
        "data": data,
    }
    return Diagnosis(findings, (*thread_advice, *kernel_advice, *data_advice))


def _versions() -> dict[str, str]:
    found = {"permalign": __version__, "python": platform.python_version(), "system": platform.platform()}
    return found | {name: _version(name) or "not installed" for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _threads() -> tuple[dict[str, str], list[str]]:
    import torch

    cores, threads = num_cores(), torch.get_num_threads()
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    found = {
        "cores": str(cores),
        "threads of torch and of the kernels": str(threads),
        "how threads wait": wait_policy(),
        "GPUs": ", ".join(gpus) or "none",
    }
    advice = []
    if warning := thread_warning():
        advice.append(warning)
    elif threads > cores:
        advice.append(
            f"torch uses {threads} threads on {cores} cores. Call torch.set_num_threads({cores}), or set "
            f"OMP_NUM_THREADS={cores}."
        )
    if threads > 1 and wait_policy().startswith("not set"):
        advice.append(
            "If several programs share this machine, set OMP_WAIT_POLICY=PASSIVE before Python starts (the command "
            "line does)."
        )
    return found, advice


def _kernels() -> tuple[dict[str, str], list[str]]:
    from permalign.kernels.compiled.disk_cache import cache_folders

    folders = cache_folders()
    kept = next((folder for folder in folders if folder.is_dir()), None)
    if kept is not None:
        count = sum(1 for path in kept.iterdir() if path.is_file())
        return {"cache": str(kept), "compiled": f"{count} kernels"}, []
    writable = next((folder for folder in folders if _is_writable(folder)), None)
    if writable is None:
        return {"cache": "none can be written"}, [
            "Compiled kernels cannot be kept, so every process compiles its own (about a minute). Set NUMBA_CACHE_DIR "
            "to a folder that can be written to."
        ]
    return {"cache": str(writable), "compiled": "none yet"}, [
        "Kernels are compiled when they are first used, which takes about a minute; `python -m permalign.kernels` "
        "compiles all of them now."
    ]


def _is_writable(folder: Path) -> bool:
    existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
    return existing is not None and os.access(existing, os.W_OK)


def _extras() -> Iterator[tuple[str, str]]:
    """Each extra, and the packages of it that are missing."""
    try:
        requirements = requires("permalign") or []
    except PackageNotFoundError:
        yield "unknown", "permalign is not installed, but imported from a folder"
        return
    needed: dict[str, list[str]] = {}
    for match in filter(None, map(REQUIREMENT.match, requirements)):
        if match["name"] != "permalign":
            needed.setdefault(match["extra"], []).append(match["name"])
    for extra, packages in needed.items():
        missing = [package for package in packages if _version(package) is None]
        if missing:
            yield extra, f'lacks {", ".join(missing)}: pip install "permalign[{extra}]"'
        else:
            yield extra, "installed"


def _plugins() -> Iterator[tuple[str, str]]:
    for noun, registry in REGISTRIES.items():
        for name in registry:
            provider = registry.provider(name)
            if provider is not None:
                package = " ".join(provider[key] for key in ("package", "version") if key in provider)
                yield f"{noun} {name}", package or provider["module"]


def _data() -> tuple[dict[str, str], list[str]]:
    root = data_root()
    present = [
        download.name
        for download in DOWNLOADS
        if all((root / download.folder / file.name).is_file() for file in download.files)
    ]
    found = {"folder": f"{root}{'' if root.is_dir() else ' (does not exist yet)'}"}
    found["datasets"] = ", ".join(present) or "none"
    missing = [download.name for download in DOWNLOADS if download.name not in present]
    advice = f"`permalign data fetch NAME` downloads datasets that are not here: {', '.join(missing)}."
    return found, [advice] if missing else []
