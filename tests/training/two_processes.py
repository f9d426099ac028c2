"""Trains in several processes, and saves the gradients of the first update: `-m tests.training.two_processes DATA DIR`.

Each process writes its final parameters as well, to see that all have the same.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tests.training.small_run import SILENT, options

from permalign.training import loop, session
from permalign.training.launch import train

torch.set_num_threads(1)


def without_noise(data, **training):
    """Options without dropout, samples and clipping, so that gradients can be compared."""
    training = {"gradient_accumulation_steps": 1, **training}
    values = options(data, clip_grad_norm=None, stages=[], reorderer_first={}, **training)
    encoder = {"hidden_size": 8, "dropout": 0.0}
    values["model"]["reorderer"] |= {"encoder": encoder, "dropout": 0.0, "objective": "soft"}
    values["model"]["head"] |= {
        "dropout": 0.0,
        "embedding_dropout": 0.0,
        "encoder": encoder,
    }
    return values


def main(data, folder):
    gradients = []

    class Keeping(session.Session):
        def trains_only_reorderer(self, step):  # called when all gradients are computed
            if not gradients:
                named = self.core.named_parameters()
                gradients.append({name: parameter.grad.clone() for name, parameter in named})
            return super().trains_only_reorderer(step)

    def run(current):
        loop_run(current)
        rank = current.accelerator.process_index
        save_file(gradients[0], folder / f"gradients-{rank}.safetensors")
        save_file(dict(current.core.state_dict()), folder / f"final-{rank}.safetensors")

    import permalign.training.launch as running

    running.Session, loop_run, loop.run = Keeping, loop.run, run
    train(without_noise(data, max_tokens=40, gradient_accumulation_steps=2), folder / "run", display=SILENT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
