"""Machine code of the kernels on disk, so that each is compiled once per machine.

Numba's own cache compares only the file a function is written in, and not the helpers it calls from other files, so it
keeps stale machine code when a helper changes. Here the folder's name holds a hash of all sources of
`permalign.kernels` and of the versions they were compiled with. Every entry begins with its checksum. An entry that is
damaged is compiled anew, and if none can be written, kernels are compiled in every process; a line on standard error
says so once.

An entry is a pickle, like Numba's, and is read from folders of the package and of the user only. Every release of
Numba has its own release of LLVM.
"""

import hashlib
import os
import pickle
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from permalign.files import atomic_file, fingerprint

_KERNELS = Path(__file__).parents[1]
_IN_PACKAGE = Path(__file__).parent / "__pycache__"
_DIGEST_SIZE = hashlib.sha256().digest_size
_PREFIX = "permalign-kernels"

_announced: set[str] = set()


def announce(message: str) -> None:
    """Print a line about the kernels on standard error, the first time only."""
    if message not in _announced:
        _announced.add(message)
        print(f"permalign: {message}", file=sys.stderr)


class KernelCache(NullCache):
    """The entries of one function: a file for each signature and processor.

    Args:
        function: the function, as Python.
    """

    def __init__(self, function: Any) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"

    @property
    def cache_path(self) -> str | None:
        """The folder that entries are written to, as Numba asks for it."""
        folders = cache_folders()
        return str(folders[0]) if folders else None

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled function for a signature, or None if it has to be compiled."""
        target_context.refresh()
        for folder in cache_folders():
            path = folder / self._file_name(signature, target_context.codegen())
            try:
                data = path.read_bytes()
            except OSError:
                continue
            if hashlib.sha256(data[_DIGEST_SIZE:]).digest() == data[:_DIGEST_SIZE]:
                return CompileResult._rebuild(target_context, *pickle.loads(data[_DIGEST_SIZE:]))
            announce(f"the compiled kernels in {folder} are damaged, and are compiled anew.")
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled function in the first folder that can be written to."""
        payload = dumps(compiled._reduce())
        reasons = []
        for folder in cache_folders():
            path = folder / self._file_name(signature, compiled.codegen)
            try:
                _remove_outdated(folder)
                with atomic_file(path) as partial:
                    partial.write_bytes(hashlib.sha256(payload).digest() + payload)
                return
            except OSError as error:
                reasons.append(f"{folder.parent}: {error.strerror}")
        announce(
            f"compiled kernels cannot be kept ({'; '.join(reasons) or 'there is no folder for them'}), so every "
            "process compiles its own. Set NUMBA_CACHE_DIR to a folder that can be written to."
        )

    def _file_name(self, signature: Any, codegen: Any) -> str:
        key = repr((signature, codegen.magic_tuple())).encode()
        return f"{self._name}-{hashlib.sha256(key).hexdigest()[:16]}.kernel"


def cache_folders() -> list[Path]:
    """Where entries are looked for: NUMBA_CACHE_DIR if it is set, or else the package and the user's cache."""
    sources = source_hash()
    if sources is None:
        return []
    name = f"{_PREFIX}-{_environment_hash()}-{sources}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    parents = [Path(chosen)] if chosen else [_IN_PACKAGE, *_user_folder()]
    return [parent / name for parent in parents]


@cache
def source_hash() -> str | None:
    """A hash of all source files of `permalign.kernels`; None if they cannot be read, as in a zip archive."""
    try:
        files = [(path.relative_to(_KERNELS), path.read_bytes()) for path in sorted(_KERNELS.rglob("*.py"))]
    except OSError:
        return None
    return fingerprint(part for name, text in files for part in (bytes(name), text))[:16] if files else None


@cache
def _environment_hash() -> str:
    """A hash of everything else that machine code depends on, except for the processor, which each entry names."""
    config: Any = numba.config
    versions = (sys.implementation.cache_tag, numba.__version__, numpy.__version__)
    return fingerprint([repr((versions, config.OPT, config.BOUNDSCHECK, config.DEBUGINFO_DEFAULT)).encode()])[
        :8
    ]


def _user_folder() -> list[Path]:
    """The user's folder for caches, if the user has a home."""
    folder = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
    return [folder / "permalign"] if folder.is_absolute() else []


def _remove_outdated(folder: Path) -> None:
    """Before a folder inside the package is made, remove those of other sources, which are gone from there."""
    if folder.exists() or folder.parent != _IN_PACKAGE or not folder.parent.exists():
        return
    same_environment = folder.name.rpartition("-")[0]
    for other in folder.parent.glob(f"{same_environment}-*"):
        shutil.rmtree(other, ignore_errors=True)
