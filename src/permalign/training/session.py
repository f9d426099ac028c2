"""A training session: everything that the training loop needs, in one process."""

import time
from pathlib import Path
from random import Random
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from permalign.encoders.huggingface import HuggingFaceEncoder
from permalign.errors import ConfigError, DataError
from permalign.evaluation import evaluate
from permalign.models.base import Model
from permalign.options.run import RunOptions
from permalign.training.early_stopping import reason_to_stop
from permalign.training.progress_display import Display
from permalign.training.resume_check import ResumeConditions
from permalign.training.run_directory import RunDirectory
from permalign.training.schedules import learning_rate
from permalign.training.setup import TrainingSetup
from permalign.training.state import TrainingState, remove_states, seed_step
from permalign.training.tracking import Tracker


class Session:
    """Everything that the training loop works on. A run that is interrupted and resumed has several sessions.

    Attributes:
        core: the model itself.
        model: the model, wrapped by accelerate for several processes.
        optimizer: the optimizer.
        progress: the progress of the run.
        total: the total number of steps.
    """

    def __init__(
        self,
        options: RunOptions,
        setup: TrainingSetup,
        run: RunDirectory,
        accelerator: Accelerator,
        display: Display,
    ) -> None:
        self.options, self.setup, self.folder, self.accelerator = options, setup, run, accelerator
        self.core = setup.model.to(accelerator.device).train()
        optimizer = make_optimizer(options, self.core)
        self.total = setup.total_steps(options, accelerator.num_processes)
        if self.total <= options.steps_of_stages():
            raise ConfigError(
                f"training has {self.total} steps, but its stages take {options.steps_of_stages()}: no step would "
                "train by the model's own objective. Train for longer, or shorten training.stages."
            )
        conditions = ResumeConditions(setup.data, accelerator.num_processes, self.total, options)
        self._state = TrainingState(
            self.core, optimizer, setup.batches.sampler, conditions, accelerator.scaler
        )
        self.progress = self._state.load(self._find_state(display))
        self.model, self.optimizer = accelerator.prepare(self.core, optimizer)
        self._clock, self._processor_clock = time.monotonic(), time.process_time()
        if accelerator.is_main_process and self.progress.step:
            remove_states(run.state, self.progress.step)
            run.settle(self.progress, self.core)

    def _find_state(self, display: Display) -> Path | None:
        """The state to resume from; the main process looks for it, so that all processes take the same one."""
        found: list[Any] = [None]
        if self.accelerator.is_main_process:
            try:
                found[0], notes = self.folder.find_state()
                for note in notes:
                    display.say(f"permalign: {note}")
            except DataError as error:
                found[0] = error
        (state,) = broadcast_object_list(found)
        if isinstance(state, DataError):
            raise state
        return state  # type: ignore[no-any-return]

    def track(self, display: Display) -> Tracker:
        """Start logging, on the main process only."""
        main = self.accelerator.is_main_process
        self._tracker = Tracker(
            self.folder if main else None, self.progress, self.total, display, self.options
        )
        return self._tracker

    def begin_step(self, step: int) -> None:
        """Set the random seeds, the objective and the learning rate of a step."""
        seed_step(self.options.seed, step, self.accelerator.process_index)
        self.core.use_objective(self.options.objective_at(step))
        for group in self.optimizer.param_groups:
            rate = learning_rate(self.options.training, step, self.total, self.progress.halvings)
            group["lr"] = rate * group["relative_rate"]

    def trains_only_reorderer(self, step: int) -> bool:
        """Whether a step updates only the reorderer (see `ReordererFirstOptions`); the same in all processes."""
        first = self.options.training.reorderer_first
        draw = Random(f"reorderer first {self.options.seed}/{step}").random()
        return step <= first.steps and draw < first.probability

    def end_step(self, step: int, loss: float, pruning_bound: float, norm: float) -> None:
        """Record a finished step."""
        progress, training = self.progress, self.options.training
        progress.step = step
        progress.loss += loss
        progress.pruning_bound += pruning_bound
        self._tracker.advance(step, loss)
        if step % training.log_every == 0 or step == self.total:
            numbers = {
                "loss": progress.loss / (step - progress.recorded),
                "learning_rate": self.optimizer.param_groups[0]["lr"],
                "gradient_norm": norm,
                "seconds": self._seconds(),
            }
            if self.options.model.is_pruned:
                numbers["pruning_bound"] = progress.pruning_bound / (step - progress.recorded)
            self._tracker.record(step, "train", numbers)
            progress.loss = progress.pruning_bound = 0.0
            progress.recorded, progress.recorded_loss = step, numbers["loss"]

    def evaluate(self) -> None:
        """Evaluate on dev in the main process, broadcast the metrics, and decide whether training stops."""
        progress, training = self.progress, self.options.training
        self.core.use_objective(self.options.model.reorderer.objective)  # that of saved models
        results: list[Any] = [None, None]
        if self.accelerator.is_main_process:
            report = evaluate(
                self.core,
                self.setup.task,
                self.setup.dev,
                beam=training.beam,
                length_penalty=training.length_penalty,
                metrics=[self.setup.metric],
            )
            results = [report.metrics, self._processor_seconds()]
        metrics, cpu_seconds = broadcast_object_list(results)
        score = metrics[self.setup.metric]
        self._tracker.record(progress.step, "dev", {self.setup.metric: score, **metrics})
        if progress.step > self.options.steps_of_stages():
            self._judge(score, cpu_seconds)
        if self.accelerator.is_main_process and any(step == progress.step for step, _ in progress.kept):
            self.folder.save_checkpoint(progress.step, self.core, report)

    def _judge(self, score: float, cpu_seconds: float) -> None:
        """Compare the model with earlier ones, and decide whether the run is finished.

        Not called in the first stages: a checkpoint of theirs would be a model that was trained by another objective.
        """
        progress, training = self.progress, self.options.training
        progress.judge(score, training.keep_checkpoints)
        if (
            training.schedule == "plateau"
            and progress.waited
            and progress.waited % training.plateau_patience == 0
        ):
            progress.halvings += 1
        progress.finished = reason_to_stop(progress, training, self.total, self.setup.metric, cpu_seconds)

    def save(self) -> None:
        """Save the state, and make the run's folder consistent with it."""
        self.progress.seconds, self.progress.processor_seconds = self._seconds(), self._processor_seconds()
        self._clock, self._processor_clock = time.monotonic(), time.process_time()
        self._tracker.sync()
        self.progress.records = self._tracker.fingerprint()
        if self.accelerator.is_main_process:
            self._state.save(self.folder.state, self.progress, self.folder.kept_checksums(self.progress))
            self.folder.settle(self.progress, self.core)
        self.accelerator.wait_for_everyone()

    def _seconds(self) -> float:
        return self.progress.seconds + time.monotonic() - self._clock

    def _processor_seconds(self) -> float:
        return self.progress.processor_seconds + time.process_time() - self._processor_clock


def make_optimizer(options: RunOptions, model: Model) -> torch.optim.Optimizer:
    """Create the optimizer: Adam, or AdamW with decoupled weight decay; fused, so that it passes over memory once.

    Pretrained models are a group of parameters with a learning rate of their own.
    """
    training = options.training
    kind = torch.optim.AdamW if training.optimizer == "adamw" else torch.optim.Adam
    rate, pretrained_rate = training.learning_rate, training.pretrained_learning_rate
    encoders = [module for module in model.modules() if isinstance(module, HuggingFaceEncoder)]
    groups: list[dict[str, Any]] = [{"params": list(model.parameters()), "relative_rate": 1.0}]
    if encoders and pretrained_rate:
        pretrained = dict.fromkeys(parameter for encoder in encoders for parameter in encoder.parameters())
        own = [parameter for parameter in model.parameters() if parameter not in pretrained]
        groups = [
            {"params": own, "relative_rate": 1.0},
            {"params": [*pretrained], "relative_rate": pretrained_rate / rate},
        ]
    return kind(groups, lr=rate, weight_decay=training.weight_decay, fused=True)
