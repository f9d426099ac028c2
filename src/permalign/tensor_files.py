"""Tensors in safetensors files, which run no code when they are read."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from permalign.errors import DataError
from permalign.files import atomic_file


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a file, atomically.

    Raises:
        DataError: the file cannot be written, for example because the disk is full.
    """
    # safetensors does not write shared memory, so every tensor gets its own
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    try:
        with atomic_file(path) as partial:
            save_file(copies, partial, metadata=None if metadata is None else dict(metadata))
    except SafetensorError as error:
        cause = _system_error(error)
        raise DataError(f"cannot be written ({error if cause is None else cause.strerror}).", path) from (
            cause or error
        )
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from error


def _system_error(error: SafetensorError) -> OSError | None:
    """The error of the operating system that safetensors met, such as that of a full disk; None for any other."""
    found = re.search(r"\(os error (\d+)\)", str(error))
    return None if found is None else OSError(int(found[1]), os.strerror(int(found[1])))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file.

    Raises:
        DataError: it is not a safetensors file, or only a part of one.
    """
    try:
        return load_file(path)
    except (SafetensorError, OSError, MemoryError) as error:
        raise DataError(f"is not a safetensors file ({error}).", path) from None


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the shapes of all tensors of a file from its header, without reading the tensors.

    Raises:
        DataError: it is not a safetensors file, or only a part of one.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, MemoryError) as error:
        raise DataError(f"is not a safetensors file ({error}).", path) from None
