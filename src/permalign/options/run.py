"""Every option of a training run; those of its model are in `permalign.options.model`.

>>> options = RunOptions.parse({"task": {"name": "arithmetic"}, "training": {"max_steps": 200}})
>>> options.dev, options.training.learning_rate
('iid/dev', 0.001)
>>> RunOptions.parse({"task": {"name": "arithmetic"}, "training": {"max_stepz": 200}})
Traceback (most recent call last):
permalign.errors.ConfigError: unknown option training.max_stepz; did you mean training.max_steps?
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from permalign.errors import ConfigError, unknown_name
from permalign.options.base import MAX_SEED, Count, NaturalInt, Options, PositiveInt
from permalign.options.model import EncoderOptions, HeadOptions, ModelOptions
from permalign.plugins import METRICS, TASKS
from permalign.tasks.base import Task
from permalign.tasks.registry import get_task

DEFAULT_EPOCHS = 100
"""The maximum number of epochs of a run that says nothing about its end."""

_HEAD_OPTIONS_OF_PRETRAINING = (
    "embedding_dim",
    "embedding_dropout",
    "word_dropout",
    "hidden_size",
    "num_layers",
    "dropout",
    "num_negatives",
    "copy_mechanism",
    "copy_dropout",
    "max_segment_length",
)
"""What the head that pretrains a reorderer has in common with the head of the run."""


class SideOptions(Options):
    """How the sources or targets are turned into token ids; the vocabulary is learned from the training split."""

    kind: Literal["words", "characters", "subwords", "tokenizer"] = Field(
        "words",
        description="whether tokens are words, characters, subwords learned by SentencePiece, or the tokens of a "
        "tokenizer of Hugging Face",
    )
    lowercase: bool = Field(
        False, description="whether to lower the case of the text (source only; not for subwords)"
    )
    pre_tokenizer: Literal["none", "punctuation", "digits"] = Field(
        "none",
        description="whether to split words at punctuation, or also at every digit; outputs are put together again "
        "(words)",
    )
    tokenizer: str | None = Field(
        None,
        min_length=1,
        description="name of a model on the Hugging Face hub, or a file tokenizer.json, or its folder (tokenizer); "
        "only tokens of the training data get embeddings",
    )
    min_frequency: PositiveInt = Field(
        1,
        description="minimum frequency of a token in the vocabulary; rarer tokens are unknown (not for subwords)",
    )
    vocab_size: PositiveInt | None = Field(
        None,
        description="maximum size of the vocabulary, null for no limit; for subwords the number of pieces, null for "
        "8000",
    )
    algorithm: Literal["unigram", "bpe"] = Field(
        "unigram", description="algorithm that learns the pieces (subwords)"
    )
    pretrained_words: bool = Field(
        False,
        description="whether the vocabulary also has every word that the tokenizer of a pretrained model keeps whole, "
        "so that the model can read words that the training data does not show (source only, if pretrained models "
        "compute all embeddings of the source)",
    )
    link_entities: bool = Field(
        False,
        description="whether to replace the entities that the task knows by their types (source only, kind words)",
    )

    @property
    def is_plain(self) -> bool:
        """Whether tokens are what is separated by spaces."""
        return self.kind == "words" and not self.lowercase and self.pre_tokenizer == "none"

    def require_fit(self, side: str) -> None:
        """Check that the options of a side do not contradict each other.

        Raises:
            ConfigError: they do; the message says what to change.
        """
        if self.kind == "subwords" and (self.min_frequency > 1 or self.lowercase):
            name = "min_frequency" if self.min_frequency > 1 else "lowercase"
            raise ConfigError(
                f"text.{side}.{name} is not for subwords, but text.{side}.kind is subwords. Leave it out."
            )
        if self.pre_tokenizer != "none" and self.kind != "words":
            raise ConfigError(
                f"text.{side}.pre_tokenizer is for words, but text.{side}.kind is {self.kind}. Leave it out."
            )
        if (self.tokenizer is not None) != (self.kind == "tokenizer"):
            raise ConfigError(
                f"text.{side}.kind: tokenizer and text.{side}.tokenizer: NAME go together; set both, or neither."
            )


class TextOptions(Options):
    """The vocabularies of sources and targets."""

    source: SideOptions = SideOptions()
    target: SideOptions = SideOptions()


class ReordererFirstOptions(Options):
    """A strategy of the ReMoto paper: with some probability, one of the first steps updates only the reorderer."""

    steps: NaturalInt = Field(
        0, description="number of first steps that may update only the reorderer; 0 for none"
    )
    probability: float = Field(
        0.5, ge=0.0, le=1.0, description="probability that such a step updates only the reorderer"
    )


class StageOptions(Options):
    """A stage at the beginning of training, with a different objective."""

    steps: PositiveInt = Field(description="number of steps of this stage")
    objective: Literal["soft", "hard", "samples", "exact"] = Field(
        description="objective of the separable or labelled reorderer in this stage"
    )


class TrainingOptions(Options):
    """The options of training."""

    max_steps: PositiveInt | None = Field(None, description="maximum number of updates")
    max_epochs: PositiveInt | None = Field(
        None,
        description="maximum number of epochs; with max_steps, whichever is reached first; null for no limit if "
        f"max_steps is set, else {DEFAULT_EPOCHS}",
    )
    max_cpu_minutes: float | None = Field(
        None,
        gt=0.0,
        description="CPU time in minutes, summed over all threads of the main process, after which training stops at "
        "the next evaluation; null for no limit",
    )
    batch_size: PositiveInt = Field(16, description="maximum number of examples in a batch")
    max_tokens: PositiveInt = Field(
        8192, description="maximum number of tokens in a batch, including both sides and padding"
    )
    gradient_accumulation_steps: PositiveInt = Field(
        1, description="number of batches per process whose gradients are accumulated for one update"
    )
    curriculum_epochs: NaturalInt = Field(
        0,
        description="number of first epochs with batches in order of increasing length instead of shuffled",
    )
    overlong_targets: Literal["error", "skip"] = Field(
        "error",
        description="what to do with training examples whose target is longer than the head can generate",
    )
    precision: Literal["fp32", "bf16", "fp16"] | None = Field(
        None,
        description="mixed precision: encoders, projections and softmaxes in bfloat16 (bf16) or float16 (fp16), and "
        "everything else in float32; on a CPU, LSTMs stay in float32, too; null for what accelerate is configured to, "
        "which is fp32 by default",
    )
    optimizer: Literal["adam", "adamw"] = Field(
        "adam", description="Adam, or AdamW with decoupled weight decay"
    )
    learning_rate: float = Field(1e-3, gt=0.0, description="highest learning rate, reached after the warm-up")
    pretrained_learning_rate: float | None = Field(
        None,
        ge=0.0,
        description="highest learning rate of pretrained models (head.pretrained, reorderer.pretrained), which follows "
        "the same schedule; 0 leaves them as they are; null for learning_rate, which is often too high for them",
    )
    weight_decay: float = Field(0.0, ge=0.0, description="weight decay of the optimizer")
    schedule: Literal["constant", "linear", "cosine", "inverse_sqrt", "plateau"] = Field(
        "constant",
        description="learning rate schedule after the warm-up; plateau halves the rate when the dev metric stops "
        "improving",
    )
    warmup_steps: NaturalInt = Field(
        0, description="number of steps over which the learning rate grows from zero"
    )
    plateau_patience: PositiveInt = Field(
        3,
        description="number of evaluations without improvement before the rate is halved (schedule plateau)",
    )
    clip_grad_norm: float | None = Field(
        5.0, gt=0.0, description="maximum norm of the gradient; null for no clipping"
    )
    pretrain_reorderer: NaturalInt = Field(
        0,
        description="number of steps for which a first model trains the reorderer by exact transduction; its head "
        "reads single words (segments without an encoder), so that their order matters. The run then starts with that "
        "reorderer and a new head; 0 for none (separable, labelled)",
    )
    reorderer_first: ReordererFirstOptions = ReordererFirstOptions()
    stages: tuple[StageOptions, ...] = Field(
        (),
        description="stages at the beginning of training, with other objectives, one after the other; no checkpoint of "
        "theirs is chosen",
    )
    restarts: Count = Field(
        1,
        description="number of seeds to try for restart_steps each; the run is then trained with the best one",
    )
    restart_steps: PositiveInt | None = Field(None, description="number of steps of each restart")
    restart_by: Literal["dev", "loss"] = Field(
        "dev",
        description="whether the best seed is the one with the best metric on dev, or the one with the lowest training "
        "loss, averaged over the last log_every steps",
    )
    recombine: NaturalInt = Field(
        0,
        description="number of additional training pairs that are made from parts of the given ones; the run then "
        "first trains a model without them, whose derivations say where pairs can be cut (head segments with objective "
        "exact, and a task with a grammar)",
    )
    evaluate_every: PositiveInt = Field(
        200, description="number of steps between evaluations on dev, after each of which the run is saved"
    )
    max_dev_examples: PositiveInt | None = Field(
        None, description="maximum number of dev examples to evaluate on, a fixed random subset; null for all"
    )
    beam: PositiveInt = Field(1, description="beam size of the evaluations on dev")
    length_penalty: float = Field(
        0.0,
        ge=0.0,
        description="exponent of the length by which log-probabilities are divided when outputs are compared; 0 for "
        "no normalisation, 1 for the mean over tokens",
    )
    metric: str | None = Field(
        None,
        description="dev metric by which the best model is selected; null for the main metric of the task",
    )
    patience: PositiveInt | None = Field(
        None,
        description="number of evaluations without improvement after which training stops; null for no early stopping",
    )
    keep_checkpoints: PositiveInt = Field(1, description="number of best checkpoints to keep")
    log_every: PositiveInt = Field(50, description="number of steps between records of the training loss")
    trackers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = Field(
        ("tensorboard",),
        description="where the records are logged besides metrics.jsonl; wandb and mlflow have to be installed, and "
        "write into the folder of the run unless WANDB_MODE or MLFLOW_TRACKING_URI is set",
    )

    @model_validator(mode="before")
    @classmethod
    def _give_an_end(cls, values: Any) -> Any:
        """Set ``max_epochs`` if nothing else ends training."""
        if isinstance(values, Mapping) and values.get("max_steps") is values.get("max_epochs") is None:
            return {**values, "max_epochs": DEFAULT_EPOCHS}
        return values


class RunOptions(Options):
    """All options of a training run: the task and its splits, the vocabularies, the model, training and the seed."""

    description: str = Field("", description="one line that describes the run")
    task: dict[str, Any] = Field(
        description="name of the task, and options of the task (see `permalign data list`)"
    )
    train: str = Field("iid/train", description="split to train on")
    dev: str = Field(
        "iid/dev", description="split to evaluate on during training, by which the best model is selected"
    )
    text: TextOptions = TextOptions()
    model: ModelOptions = ModelOptions()
    training: TrainingOptions = TrainingOptions()
    seed: int = Field(
        0,
        ge=0,
        le=MAX_SEED,
        description="seed of initial weights, batches and noise; generated data has a seed of its own, task.seed",
    )

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate values, and check that they do not contradict each other; no data is read."""
        options = super().parse(values)
        options.require_fit()
        return options

    def plugins(self) -> list[dict[str, str]]:
        """What provides the parts, the task and the metric that are not permalign's own; see `Registry.provider`."""
        metric = self.training.metric
        others = [TASKS.provider(self.task["name"]), METRICS.provider(metric) if metric else None]
        return [*self.model.plugins(), *(provider for provider in others if provider is not None)]

    def make_task(self) -> Task:
        """Create the task; its data is not read yet."""
        if not isinstance(self.task.get("name"), str):
            raise ConfigError("task.name must say which task to learn; see `permalign data list`.")
        return get_task(**self.task)

    def require_split(self, task: Task) -> None:
        """Check that the task has the splits; this reads the data if the splits depend on it."""
        for option, split in (("train", self.train), ("dev", self.dev)):
            if split not in task.splits:
                raise ConfigError(f"{option}: " + unknown_name(f"split of {task.name}", split, task.splits))

    def require_fit(self) -> None:
        """Check that the options do not contradict each other.

        Raises:
            ConfigError: they do; the message says what to change.
        """
        self.make_task()
        self.model.require_fit()
        training = self.training
        if training.max_steps is not None and training.warmup_steps >= training.max_steps:
            raise ConfigError(
                f"training.warmup_steps is {training.warmup_steps}, but training.max_steps only {training.max_steps}: "
                "the learning rate would never be reached. Lower training.warmup_steps."
            )
        if training.schedule == "inverse_sqrt" and not training.warmup_steps:
            raise ConfigError(
                "training.schedule inverse_sqrt decays from the end of the warm-up. Set training.warmup_steps."
            )
        if training.reorderer_first.steps and self.model.reorderer.kind == "none":
            raise ConfigError(
                "training.reorderer_first.steps is set, but model.reorderer.kind is none: there is nothing to train "
                "first. Leave it out, or choose a reorderer."
            )
        self._require_stages()
        self._require_restarts()
        self._require_pretraining()
        self._require_recombination()
        self._require_text()

    def _require_text(self) -> None:
        for side, options in (("source", self.text.source), ("target", self.text.target)):
            options.require_fit(side)
        source = self.text.source
        if self.text.target.link_entities:
            raise ConfigError(
                "text.target.link_entities is true, but entities can be linked in the source only. Leave it out."
            )
        if self.text.target.lowercase:
            raise ConfigError(
                "text.target.lowercase is true, but then no output could equal a target with capital letters. Lower "
                "the case of the targets in the data instead."
            )
        if source.link_entities and not source.is_plain:
            raise ConfigError(
                "text.source.link_entities is for words as they are. Leave out text.source.kind, lowercase and "
                "pre_tokenizer."
            )
        if self.text.target.pretrained_words:
            raise ConfigError(
                "text.target.pretrained_words is true, but pretrained models read the source only. Leave it out."
            )
        if source.pretrained_words and (source.min_frequency > 1 or source.vocab_size is not None):
            raise ConfigError(
                "text.source.pretrained_words adds words that need not occur in the training data. Leave out "
                "text.source.min_frequency and vocab_size."
            )
        if source.pretrained_words and not self.model.reads_only_pretrained_embeddings:
            raise ConfigError(
                "text.source.pretrained_words is true, but the model also has embeddings of its own, which cannot be "
                "trained for words that the training data does not show. Set model.head.pretrained, and "
                "model.reorderer.shared_embeddings or model.reorderer.pretrained; or leave it out."
            )
        pretrained = {"head": self.model.head.pretrained, "reorderer": self.model.reorderer.pretrained}
        if self.training.pretrained_learning_rate is not None and not any(pretrained.values()):
            raise ConfigError(
                "training.pretrained_learning_rate is set, but no part of the model is pretrained. Leave it out, or "
                "set model.head.pretrained or model.reorderer.pretrained."
            )
        for component in (component for component, name in pretrained.items() if name):
            if not source.is_plain:
                raise ConfigError(
                    f"model.{component}.pretrained reads words as they are and tokenizes them itself. Leave out "
                    "text.source.kind, lowercase and pre_tokenizer."
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
        steps = self.steps_of_stages()
        if training.max_steps is not None and steps >= training.max_steps:
            raise ConfigError(
                f"training.stages take {steps} steps, but training.max_steps is {training.max_steps}: no step would "
                "train by the model's own objective. Raise training.max_steps."
            )
        for index, stage in enumerate(training.stages):
            changed = reorderer.model_copy(update={"objective": stage.objective})
            try:
                self.model.model_copy(update={"reorderer": changed}).require_fit()
            except ConfigError as error:
                raise ConfigError(f"training.stages.{index}: {error}") from None

    def _require_restarts(self) -> None:
        training = self.training
        if (training.restarts > 1) != (training.restart_steps is not None):
            raise ConfigError(
                "training.restarts and training.restart_steps go together; set both, or neither."
            )
        steps = self.steps_of_stages()
        if training.restart_steps is not None and training.restart_steps <= max(steps, training.warmup_steps):
            raise ConfigError(
                f"training.restart_steps is {training.restart_steps}, but the warm-up takes {training.warmup_steps} "
                f"steps and the stages {steps}: a restart that ends before them tells little. Raise it."
            )

    def _require_pretraining(self) -> None:
        training, model = self.training, self.model
        if not training.pretrain_reorderer:
            return
        if model.reorderer.kind not in ("separable", "labelled"):
            raise ConfigError(
                "training.pretrain_reorderer trains a separable or labelled reorderer, but model.reorderer.kind is "
                f"{model.reorderer.kind}. Leave it out."
            )
        if model.ensemble_size > 1 or model.inverse is not None:
            raise ConfigError(
                "training.pretrain_reorderer is for single models, but the model has an inverse model or an "
                "ensemble_size above 1. Leave one of them out."
            )
        if model.reorderer.shared_embeddings and model.head.pretrained:
            raise ConfigError(
                "training.pretrain_reorderer needs a head that reads single words, but with "
                "model.reorderer.shared_embeddings, the reorderer has the contextual embeddings of "
                "model.head.pretrained. Leave one of the three out."
            )
        if training.restarts > 1:
            raise ConfigError(
                "training.pretrain_reorderer and training.restarts cannot be combined. Set one of them."
            )
        if training.warmup_steps >= training.pretrain_reorderer:
            raise ConfigError(
                f"training.pretrain_reorderer is {training.pretrain_reorderer}, but training.warmup_steps is "
                f"{training.warmup_steps}: the learning rate would never be reached. Raise the former."
            )

    def _require_recombination(self) -> None:
        if not self.training.recombine:
            return
        if self.model.head.kind != "segments" or not self.model.reorderer.sums_over_orders:
            raise ConfigError(
                "training.recombine cuts pairs by derivations, which need head.kind: segments with "
                "reorderer.objective: exact. Change the model, or leave training.recombine out."
            )
        if self.make_task().grammar is None:
            raise ConfigError(
                f"training.recombine exchanges parts of the same type, but the task {self.task['name']} has no "
                "grammar. Leave it out."
            )

    def steps_of_stages(self) -> int:
        """The number of first steps that train by other objectives than the model's own."""
        return sum(stage.steps for stage in self.training.stages)

    def attempts(self) -> list[Self]:
        """The options of the short runs that try different seeds (see ``training.restarts``)."""
        training = self.training
        short = {
            "max_steps": training.restart_steps,
            "max_epochs": None,
            "restarts": 1,
            "restart_steps": None,
            "recombine": 0,
        }
        return [
            self.model_copy(
                update={
                    "seed": self.seed * training.restarts + attempt,
                    "training": training.model_copy(update=short),
                }
            )
            for attempt in range(training.restarts)
        ]

    def reorderer_pretraining(self) -> Self:
        """The options of the first model of a run with ``training.pretrain_reorderer``."""
        head = self.model.head
        words_only = HeadOptions(
            kind="segments",
            encoder=EncoderOptions(kind="none"),
            **{name: getattr(head, name) for name in _HEAD_OPTIONS_OF_PRETRAINING},
        )
        reorderer = self.model.reorderer.model_copy(update={"objective": "exact"})
        training = {
            "pretrain_reorderer": 0,
            "max_steps": self.training.pretrain_reorderer,
            "evaluate_every": self.training.pretrain_reorderer,
            "max_epochs": None,
            "max_cpu_minutes": None,
            "overlong_targets": "skip",
            "stages": (),
            "reorderer_first": ReordererFirstOptions(),
            "recombine": 0,
            "patience": None,
        }
        return self.model_copy(
            update={
                "model": self.model.model_copy(update={"reorderer": reorderer, "head": words_only}),
                "training": self.training.model_copy(update=training),
            }
        )

    def without_recombination(self) -> Self:
        """The options of the first model of a run with ``training.recombine``."""
        return self.model_copy(update={"training": self.training.model_copy(update={"recombine": 0})})

    def with_precision(self, precision: Literal["fp32", "bf16", "fp16"] | None) -> Self:
        """The same options with another precision."""
        training = self.training.model_copy(update={"precision": precision})
        return self.model_copy(update={"training": training})

    def with_seed(self, seed: int) -> Self:
        """The same options with another seed."""
        return self.model_copy(update={"seed": seed})

    def objective_at(self, step: int) -> str:
        """The objective of the separable or labelled reorderer in a step, counted from 1."""
        for stage in self.training.stages:
            if step <= stage.steps:
                return stage.objective
            step -= stage.steps
        return self.model.reorderer.objective
