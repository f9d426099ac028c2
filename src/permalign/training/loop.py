"""The training loop, which is the same for one CPU, several GPUs and several machines."""

import math
from collections.abc import Iterator
from contextlib import nullcontext

import torch

from permalign.errors import PermalignError
from permalign.text.batching import Batch, Batches
from permalign.training.interrupt_handler import InterruptHandler, SavedInterrupt
from permalign.training.session import Session


def run(session: Session) -> None:
    """Train until the run is finished.

    Every process reads the same stream of batches, and takes its share of the batches of each update. The loss of a
    batch is a mean over its sentences, and accelerate averages gradients over processes. With the weights below, the
    gradient is that of the mean over all sentences of the update, however they are distributed over batches and
    processes.
    """
    training, accelerator, progress = session.options.training, session.accelerator, session.progress
    processes, stream = accelerator.num_processes, endless(session.setup.batches)
    with InterruptHandler(accelerator) as interrupts:
        while progress.finished is None:
            step = progress.step + 1
            session.begin_step(step)  # random seeds, objective, learning rate

            batches = [next(stream) for _ in range(training.gradient_accumulation_steps * processes)]
            sentences = sum(len(batch) for batch in batches)
            own_batches = batches[accelerator.process_index :: processes]
            step_loss, step_bound = torch.zeros((2,), device=accelerator.device)
            for batch in own_batches:
                last = (
                    batch is own_batches[-1]
                )  # gradients are exchanged between processes only with the last batch
                with nullcontext() if last else accelerator.no_sync(session.model):
                    loss, share = session.model(batch.to(accelerator.device)), len(batch) / sentences
                    accelerator.backward(loss.total * share * processes)
                    step_loss += loss.total.detach() * share
                    step_bound += loss.pruning_bound * share

            if session.trains_only_reorderer(step):
                session.core.keep_only_reorderer_gradients()
            norms = [  # models that are trained independently are clipped independently
                float(accelerator.clip_grad_norm_(group, training.clip_grad_norm or math.inf))
                for group in session.core.independent_parameters()
            ]
            norm = math.hypot(*norms)
            # in fp16, the scaler skips such a step and scales the next loss less
            if not math.isfinite(norm) and accelerator.scaler is None:
                raise PermalignError(
                    f"the gradient of step {step} has norm {norm}. Lower training.learning_rate or "
                    "training.clip_grad_norm, and start again."
                )
            session.optimizer.step()
            session.optimizer.zero_grad()

            mean_loss, mean_bound = accelerator.reduce(torch.stack([step_loss, step_bound]), "sum").tolist()
            session.end_step(step, mean_loss, mean_bound, norm)
            if step % training.evaluate_every == 0 or step == session.total:
                session.evaluate()
                session.save()
            if interrupts.requested() and progress.finished is None:
                session.save()
                raise SavedInterrupt(session.folder.path, step)


def endless(batches: Batches) -> Iterator[Batch]:
    """Iterate over epochs without end; the sampler stores the position."""
    while True:
        yield from batches
