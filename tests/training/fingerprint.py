"""Trains a small run, and prints the hash of its weights, with what they depend on.

``python -m tests.training.fingerprint FOLDER`` trains in a folder that does not exist yet. What it prints belongs into
``tests/data/fingerprints.jsonl`` when a change is meant to change the weights of all runs.
"""

import json
import platform
import sys
from hashlib import sha256
from pathlib import Path

import llvmlite.binding
import numba
import numpy
import torch
from safetensors.torch import load_file
from tests.training.small_run import SILENT, options, write_data

from permalign.training.launch import train


def kind_of_machine():
    """What decides how numbers are rounded: the processor, and the libraries that compute with it."""
    return {
        "processor": f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}",
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "libc": " ".join(platform.libc_ver()),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
    }


def hash_of_weights(folder):
    """The hash of the weights of a run that is trained by one thread."""
    train(options(write_data(folder)), folder / "run", display=SILENT)
    weights = load_file(folder / "run" / "model" / "model.safetensors")
    digest = sha256()
    for name in sorted(weights):
        digest.update(name.encode() + weights[name].numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"weights": hash_of_weights(Path(sys.argv[1])), **kind_of_machine()}))
