"""Set up training from options: create the task, the vocabularies, the batches and a new model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random

import torch

from permalign.encoders.huggingface import load_tokenizer, whole_words
from permalign.errors import ConfigError, unknown_name
from permalign.evaluation import main_metric, make_report
from permalign.evaluation.metrics import TRANSLATION_METRICS, is_translation
from permalign.files import fingerprint
from permalign.models.base import Model
from permalign.models.build_model import build_model
from permalign.options.run import RunOptions, SideOptions
from permalign.plugins import METRICS
from permalign.tasks.base import Example, Task
from permalign.tasks.seeded_random import shuffled
from permalign.text.batching import Batches
from permalign.text.codec import SPECIALS, Codec
from permalign.text.entities import EntityVocabulary
from permalign.text.subwords import Subwords
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.vocabulary import Vocabulary
from permalign.training.tokenization import make_tokenizer

DEFAULT_SUBWORDS = 8000


@dataclass(frozen=True)
class TrainingSetup:
    """The data and the model of a run.

    Attributes:
        task: the task, which judges predictions.
        batches: the batches of the training split.
        dev: the examples to evaluate on during training.
        model: the new model, initialised with the seed of the run.
        metric: the dev metric that checkpoints are compared by.
        data: a fingerprint of the training split.
        skipped: the number of training examples that are skipped, because their likelihood is zero.
        skipped_by_inverse: the number of further examples that only the inverse model skips.
    """

    task: Task
    batches: Batches
    dev: Sequence[Example]
    model: Model
    metric: str
    data: str
    skipped: int
    skipped_by_inverse: int = 0

    def total_steps(self, options: RunOptions, processes: int) -> int:
        """The total number of updates of the run."""
        training = options.training
        limits = [training.max_steps] if training.max_steps is not None else []
        if training.max_epochs is not None:
            batches = training.gradient_accumulation_steps * processes
            limits.append(ceil(training.max_epochs * len(self.batches) / batches))
        return min(limits)


def prepare(options: RunOptions, extra: Sequence[Example] = ()) -> TrainingSetup:
    """Read the data, build the vocabularies and create the model.

    Args:
        options: the options of the run.
        extra: examples to train on in addition to the training split.
    """
    task = options.make_task()
    _require_possible_metric(options, task)
    options.require_split(task)
    examples, dev = [*task.examples(options.train), *extra], task.examples(options.dev)
    for option, split_examples in (("train", examples), ("dev", dev)):
        if not split_examples:
            raise ConfigError(
                f"{option}: the split {getattr(options, option)} of {task.name} has no examples."
            )
    pairs = [(example.source, example.target) for example in examples]
    entities = _entities(options, task)
    words = _pretrained_words(options)
    source = learn_codec(options.text.source, [*(example.source for example in examples), *words], entities)
    target = learn_codec(options.text.target, [example.target for example in examples], restorable=True)
    torch.manual_seed(options.seed)
    model = build_model(options.model, source, target)
    if options.training.pretrained_learning_rate == 0:
        for encoder in model.pretrained.values():
            encoder.requires_grad_(False)
    learnable, skipped_by_inverse = select_learnable(options, model, examples)
    return TrainingSetup(
        task,
        _batches(options, learnable, source, target),
        _subset(dev, options.training.max_dev_examples),
        model,
        _metric(options, task, dev),
        fingerprint(repr(item).encode() for item in (*pairs, *(entities or {}).items(), *words)),
        len(examples) - len(learnable),
        skipped_by_inverse,
    )


def _require_possible_metric(options: RunOptions, task: Task) -> None:
    """Raise an error for a metric that the task cannot have, before the data is read."""
    possible = [name for name in METRICS if is_translation(task) or name not in TRANSLATION_METRICS]
    metric = options.training.metric
    if metric is not None and metric not in possible:
        raise ConfigError("training.metric: " + unknown_name(f"metric of {task.name}", metric, possible))


def _metric(options: RunOptions, task: Task, dev: Sequence[Example]) -> str:
    """The metric by which checkpoints are compared; raises an error if the task does not have it."""
    metric = options.training.metric or main_metric(task)
    known = make_report(task, [(dev[0], dev[0].target, 0.0)], [metric]).metrics
    if metric not in known:
        raise ConfigError("training.metric: " + unknown_name(f"metric of {task.name}", metric, known))
    return metric


def _entities(options: RunOptions, task: Task) -> Mapping[str, str] | None:
    """The entities to link; None if entity linking is off."""
    if not options.text.source.link_entities:
        return None
    if entities := task.entities:
        return entities
    raise ConfigError(
        f"text.source.link_entities: the task {task.name} has no entities. Leave out the option."
    )


def _pretrained_words(options: RunOptions) -> list[tuple[str]]:
    """The words that the pretrained models know as a whole, each as a sentence; none if they are not asked for."""
    if not options.text.source.pretrained_words:
        return []
    names = {options.model.head.pretrained, options.model.reorderer.pretrained} - {None}
    tokenizers = [load_tokenizer(name) for name in sorted(map(str, names))]
    return [(word,) for word in sorted({word for tokenizer in tokenizers for word in whole_words(tokenizer)})]


def learn_codec(
    options: SideOptions,
    sentences: Sequence[Sequence[str]],
    entities: Mapping[str, str] | None = None,
    *,
    restorable: bool = False,
) -> Codec:
    """Learn the vocabulary of the sources or targets from the training sentences.

    Args:
        options: the options of the side.
        sentences: the training sentences.
        entities: the entities to link; None for none.
        restorable: whether text must be restored from tokens, as that of outputs.
    """
    if options.kind == "subwords":
        try:
            return Subwords.train(
                sentences, options.vocab_size or DEFAULT_SUBWORDS, algorithm=options.algorithm
            )
        except ValueError as error:
            raise ConfigError(f"text: {error}") from None
    min_frequency, max_size = options.min_frequency, options.vocab_size
    vocabulary: Vocabulary | EntityVocabulary | TokenizedVocabulary
    if (tokenizer := make_tokenizer(options, restorable=restorable)) is not None:
        vocabulary = TokenizedVocabulary.build(
            sentences, tokenizer, min_frequency=min_frequency, max_size=max_size
        )
    elif entities is None:
        vocabulary = Vocabulary.build(sentences, min_frequency=min_frequency, max_size=max_size)
    else:
        vocabulary = EntityVocabulary.build(
            sentences, entities, min_frequency=min_frequency, max_size=max_size
        )
    if len(vocabulary) == len(SPECIALS):
        raise ConfigError(
            f"text: no word of the training data occurs {options.min_frequency} times. Lower min_frequency."
        )
    return vocabulary


def _batches(options: RunOptions, examples: Sequence[Example], source: Codec, target: Codec) -> Batches:
    training = options.training
    try:
        return Batches(
            examples,
            source,
            target,
            training.max_tokens,
            seed=options.seed,
            batch_size=training.batch_size,
            curriculum_epochs=training.curriculum_epochs,
        )
    except ValueError as error:
        raise ConfigError(f"training.max_tokens: {error}") from None


def select_learnable(
    options: RunOptions, model: Model, examples: Sequence[Example]
) -> tuple[Sequence[Example], int]:
    """Select the examples that a model can learn from, and count those that only its inverse model cannot learn from.

    The likelihood of all other examples is zero, and so is its gradient.

    Raises:
        ConfigError: there are such examples, and ``training.overlong_targets`` is not ``skip``; or no example is left.
    """
    problems = [model.find_training_problem(example) for example in examples]
    fatal = [problem for problem in problems if problem is not None and not problem.only_inverse]
    inverse = [problem for problem in problems if problem is not None and problem.only_inverse]
    num_learnable = len(examples) - len(fatal)
    for unusable, num_usable in ((fatal, num_learnable), (inverse, num_learnable - len(inverse))):
        if unusable and (not num_usable or options.training.overlong_targets == "error"):
            skip = f"; or skip such examples (here {len(unusable)}) with training.overlong_targets: skip"
            advice = unusable[0].advice[0].upper() + unusable[0].advice[1:]
            raise ConfigError(f"{unusable[0].reason} {advice}{skip if num_usable else ''}.")
    learnable = [
        example
        for example, problem in zip(examples, problems, strict=True)
        if problem is None or problem.only_inverse
    ]
    return learnable, len(inverse)


def _subset(examples: Sequence[Example], count: int | None) -> Sequence[Example]:
    """Draw a random subset of the examples, which is always the same; their order is preserved."""
    if count is None or count >= len(examples):
        return examples
    chosen = sorted(shuffled(range(len(examples)), Random("dev examples"))[:count])
    return [examples[index] for index in chosen]
