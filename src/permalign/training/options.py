"""Every option of a training run; the model's own are in `permalign.config`.

>>> options = RunOptions.parse({"task": {"name": "arithmetic"}, "training": {"steps": 200}})
>>> options.dev, options.training.learning_rate
('iid/dev', 0.001)
>>> RunOptions.parse({"task": {"name": "arithmetic"}, "training": {"stepz": 200}})
Traceback (most recent call last):
permalign.errors.ConfigError: training.stepz is no option; did you mean training.steps?
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field

from permalign.config import ModelOptions, Options, Width
from permalign.errors import ConfigError, unknown_name
from permalign.tasks.base import Task
from permalign.tasks.registry import get_task


class SideOptions(Options):
    """How the text of one side becomes numbers; learned from the training split."""

    kind: Literal["words", "subwords"] = Field("words", description="subwords are SentencePiece's")
    minimum_count: Width = Field(1, description="words: rarer ones are unknown")
    size: Width | None = Field(
        None, description="words: keep that many; subwords: how many pieces, 8000 if not said"
    )
    algorithm: Literal["unigram", "bpe"] = Field("unigram", description="subwords: how pieces are learned")
    names: bool = Field(
        False,
        description="words of the source: read the names that the task knows as the kinds of what they name",
    )


class TextOptions(Options):
    """The two sides."""

    source: SideOptions = SideOptions()
    target: SideOptions = SideOptions()


class ReordererFirstOptions(Options):
    """The paper's strategy: in the first steps, with some probability, only the reorderer moves."""

    steps: int = Field(0, ge=0, description="how many first steps; 0 for none")
    probability: float = Field(0.5, ge=0.0, le=1.0)


class StageOptions(Options):
    """Some steps at the beginning that train by another objective."""

    steps: Width = Field(description="how many")
    objective: Literal["soft", "hard", "samples", "exact"] = Field(
        description="of the separable or labelled reorderer"
    )


class TrainingOptions(Options):
    """How to train."""

    steps: Width | None = Field(None, description="stop after so many updates")
    epochs: Width | None = Field(
        None, description="stop after so many passes; with steps, what comes first counts"
    )
    processor_minutes: float | None = Field(
        None,
        gt=0.0,
        description="stop at the first evaluation after so much processor time, of all threads of the main process; "
        "other programs on the machine do not shorten it",
    )
    batch_size: Width = Field(16, description="the most examples of a batch")
    token_budget: Width = Field(
        8192, description="the most tokens of a batch, padding and both sides included"
    )
    accumulate: Width = Field(1, description="batches of each process for one update")
    short_to_long: int = Field(
        0, ge=0, description="epochs at the beginning whose batches go from short to long instead of mixed"
    )
    unwritable: Literal["refuse", "leave_out"] = Field(
        "refuse",
        description="what to do with training examples whose output is longer than the head can write",
    )
    optimiser: Literal["adam", "adamw"] = "adam"
    learning_rate: float = Field(1e-3, gt=0.0)
    weight_decay: float = Field(0.0, ge=0.0)
    schedule: Literal["constant", "linear", "cosine", "inverse_sqrt", "plateau"] = Field(
        "constant",
        description="of the learning rate after the warm-up; plateau halves it when dev stands still",
    )
    warmup: int = Field(0, ge=0, description="steps over which the rate grows from nothing")
    plateau: Width = Field(
        3, description="schedule plateau: evaluations without a better one before it halves"
    )
    clip: float | None = Field(5.0, gt=0.0, description="longest gradient (its norm); null for any")
    reorderer_first: ReordererFirstOptions = ReordererFirstOptions()
    stages: tuple[StageOptions, ...] = Field(
        (), description="first steps with other objectives, one after another"
    )
    restarts: Width = Field(
        1, description="try so many seeds for restart_steps each, and train with the one that is best on dev"
    )
    restart_steps: Width | None = Field(None, description="of each of several restarts")
    evaluate_every: Width = Field(
        200, description="steps between evaluations on dev; a checkpoint goes with each"
    )
    dev_examples: Width | None = Field(
        None, description="evaluate on so many of dev, drawn once; null for all"
    )
    beam: Width = Field(1, description="of the evaluations on dev")
    metric: str | None = Field(None, description="what is best on dev; null for the task's own metric")
    patience: Width | None = Field(None, description="stop after so many evaluations without a better one")
    keep: Width = Field(1, description="how many of the best models to keep")
    log_every: Width = Field(50, description="steps between records of the training loss")


class RunOptions(Options):
    """A training run: what to learn, from what, with which model and how."""

    description: str = Field("", description="one line about it")
    task: dict[str, Any] = Field(description="its name, and its options as in `permalign data list`")
    train: str = Field("iid/train", description="the split to learn from")
    dev: str = Field("iid/dev", description="the split that judges models")
    text: TextOptions = TextOptions()
    model: ModelOptions = ModelOptions()
    training: TrainingOptions = TrainingOptions()
    seed: int = Field(0, ge=0, description="of weights, batches and noise; the data has task.seed")

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Check values, and that they do not contradict each other; no data is read."""
        options = super().parse(values)
        options.require_fit()
        return options

    def make_task(self) -> Task:
        """The task, its data still unread."""
        if not isinstance(self.task.get("name"), str):
            raise ConfigError("task.name must say which task to learn; see `permalign data list`.")
        return get_task(**self.task)

    def require_split(self, task: Task) -> None:
        """A `ConfigError` if the task has no such splits. May read the data of a task that has its own files."""
        for option, split in (("train", self.train), ("dev", self.dev)):
            if split not in task.splits:
                raise ConfigError(f"{option}: " + unknown_name(f"split of {task.name}", split, task.splits))

    def require_fit(self) -> None:
        """A `ConfigError` for options that contradict each other, with a way out."""
        self.make_task()
        self.model.require_fit()
        training, reorderer = self.training, self.model.reorderer
        if training.steps is None and training.epochs is None:
            raise ConfigError("nothing says when to stop. Set training.steps or training.epochs.")
        if training.steps is not None and training.warmup >= training.steps:
            raise ConfigError(
                f"training.warmup is {training.warmup}, but training.steps only {training.steps}: the rate would never "
                "be reached. Lower training.warmup."
            )
        if training.schedule == "inverse_sqrt" and not training.warmup:
            raise ConfigError(
                "training.schedule inverse_sqrt falls from the end of a warm-up. Set training.warmup."
            )
        if training.reorderer_first.steps and reorderer.kind == "none":
            raise ConfigError(
                "training.reorderer_first.steps is set, but model.reorderer.kind is none: there is nothing to train "
                "first. Leave it out, or choose a reorderer."
            )
        self._require_stages()
        self._require_restarts()
        for side, options in (("source", self.text.source), ("target", self.text.target)):
            if options.kind == "subwords" and options.minimum_count > 1:
                raise ConfigError(
                    f"text.{side}.minimum_count is for words, but text.{side}.kind is subwords."
                )
        if self.text.target.names:
            raise ConfigError(
                "text.target.names: names can be read as their kinds, not written. Leave it out."
            )
        if self.text.source.names and self.text.source.kind == "subwords":
            raise ConfigError("text.source.names is for words, but text.source.kind is subwords.")
        for part, pretrained in (("head", self.model.head.pretrained), ("reorderer", reorderer.pretrained)):
            if pretrained and self.text.source.kind == "subwords":
                raise ConfigError(
                    f"model.{part}.pretrained reads words, but text.source.kind is subwords. Use words."
                )
            if pretrained and self.text.source.names:
                raise ConfigError(
                    f"model.{part}.pretrained knows words, but text.source.names is set. Leave one of them out."
                )

    def _require_stages(self) -> None:
        training, reorderer = self.training, self.model.reorderer
        if not training.stages:
            return
        if reorderer.kind not in ("separable", "labelled"):
            raise ConfigError(
                "training.stages change the objective of a separable or labelled reorderer, but model.reorderer.kind "
                f"is {reorderer.kind}. Leave training.stages out."
            )
        together = sum(stage.steps for stage in training.stages)
        if training.steps is not None and together > training.steps:
            raise ConfigError(
                f"training.stages take {together} steps, but training.steps is {training.steps}. Raise it."
            )
        for place, stage in enumerate(training.stages):
            changed = reorderer.model_copy(update={"objective": stage.objective})
            try:
                self.model.model_copy(update={"reorderer": changed}).require_fit()
            except ConfigError as error:
                raise ConfigError(f"training.stages.{place}: {error}") from None

    def _require_restarts(self) -> None:
        training = self.training
        if (training.restarts > 1) != (training.restart_steps is not None):
            raise ConfigError(
                "training.restarts and training.restart_steps go together; set both, or neither."
            )
        together = sum(stage.steps for stage in training.stages)
        if training.restart_steps is not None and training.restart_steps < max(together, training.warmup + 1):
            raise ConfigError(
                f"training.restart_steps is {training.restart_steps}, but the warm-up takes {training.warmup} steps "
                f"and the stages {together}: a restart that ends before tells little. Raise it."
            )

    def attempts(self) -> list[Self]:
        """The short runs that restarts are: seeds of their own for every seed, and no restarts."""
        training = self.training
        short = {"steps": training.restart_steps, "epochs": None, "restarts": 1, "restart_steps": None}
        return [
            self.model_copy(
                update={
                    "seed": self.seed * training.restarts + number,
                    "training": training.model_copy(update=short),
                }
            )
            for number in range(training.restarts)
        ]

    def with_seed(self, seed: int) -> Self:
        """The same with another seed, chosen among the restarts."""
        return self.model_copy(update={"seed": seed})

    def objective_at(self, step: int) -> str:
        """The objective of the separable reorderer in a step, counted from 1."""
        for stage in self.training.stages:
            if step <= stage.steps:
                return stage.objective
            step -= stage.steps
        return self.model.reorderer.objective
