"""Set up training from options: the task, the vocabularies, the batches and a new model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from random import Random

import torch

from permalign.errors import ConfigError, unknown_name
from permalign.evaluation import main_metric, make_report
from permalign.evaluation.metrics import TRANSLATION_METRICS, is_translation
from permalign.files import fingerprint
from permalign.heads.base import Head
from permalign.model import Transducer
from permalign.options.run import RunOptions, SideOptions
from permalign.tasks.base import Example, Task
from permalign.tasks.seeded_random import shuffled
from permalign.text.batching import Batches
from permalign.text.codec import SPECIALS, Codec
from permalign.text.entities import EntityVocabulary
from permalign.text.subwords import Subwords
from permalign.text.vocabulary import Vocabulary

DEFAULT_SUBWORDS = 8000
METRICS = ("exact_match", "token_accuracy", "execution_accuracy", "well_formed")


@dataclass(frozen=True)
class TrainingSetup:
    """The data and the model of a run.

    Attributes:
        task: the task, which judges predictions.
        batches: the batches of the training split.
        dev: the examples to evaluate on during training.
        model: the new model, initialised with the run's seed.
        metric: the dev metric that checkpoints are compared by.
        data: a fingerprint of the training split.
        skipped: the number of training examples whose targets are too long for the head.
        skipped_by_inverse: the number of the other examples whose sources are too long for the inverse model.
    """

    task: Task
    batches: Batches
    dev: Sequence[Example]
    model: Transducer
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


def prepare(options: RunOptions) -> TrainingSetup:
    """Read the data, build the vocabularies and create the model."""
    task = options.make_task()
    _require_possible_metric(options, task)
    options.require_split(task)
    examples, dev = task.examples(options.train), task.examples(options.dev)
    for option, split_examples in (("train", examples), ("dev", dev)):
        if not split_examples:
            raise ConfigError(
                f"{option}: the split {getattr(options, option)} of {task.name} has no examples."
            )
    pairs = [(example.source, example.target) for example in examples]
    entities = _entities(options, task)
    source = learn_codec(options.text.source, [example.source for example in examples], entities)
    target = learn_codec(options.text.target, [example.target for example in examples])
    torch.manual_seed(options.seed)
    model = Transducer(options.model, source, target)
    written = writable(options, model, examples)
    unread = len(written) - len(readable(options, model, written))
    return TrainingSetup(
        task,
        _batches(options, written, source, target),
        _subset(dev, options.training.max_dev_examples),
        model,
        _metric(options, task, dev),
        fingerprint(repr(pair).encode() for pair in (*pairs, *(entities or {}).items())),
        len(examples) - len(written),
        unread,
    )


def _require_possible_metric(options: RunOptions, task: Task) -> None:
    """Reject a metric that the task cannot have, before the data is read."""
    possible = (*METRICS, *(TRANSLATION_METRICS if is_translation(task) else ()))
    metric = options.training.metric
    if metric is not None and metric not in possible:
        raise ConfigError("training.metric: " + unknown_name(f"metric of {task.name}", metric, possible))


def _metric(options: RunOptions, task: Task, dev: Sequence[Example]) -> str:
    """The metric that checkpoints are compared by; an error if the task does not have it."""
    metric = options.training.metric or main_metric(task)
    known = make_report(task, [(dev[0], dev[0].target, 0.0)]).metrics
    if metric not in known:
        raise ConfigError("training.metric: " + unknown_name(f"metric of {task.name}", metric, known))
    return metric


def _entities(options: RunOptions, task: Task) -> Mapping[str, str] | None:
    """The entities to link; None without entity linking."""
    if not options.text.source.link_entities:
        return None
    if entities := task.entities:
        return entities
    raise ConfigError(
        f"text.source.link_entities: the task {task.name} has no entities. Leave out the option."
    )


def learn_codec(
    options: SideOptions, sentences: Sequence[Sequence[str]], entities: Mapping[str, str] | None = None
) -> Codec:
    """Learn the vocabulary of one side from its training sentences."""
    if options.kind == "subwords":
        try:
            return Subwords.train(
                sentences, options.vocab_size or DEFAULT_SUBWORDS, algorithm=options.algorithm
            )
        except ValueError as error:
            raise ConfigError(f"text: {error}") from None
    minimum, size = options.min_frequency, options.vocab_size
    vocabulary: Vocabulary | EntityVocabulary
    if entities is None:
        vocabulary = Vocabulary.build(sentences, min_frequency=minimum, max_size=size)
    else:
        vocabulary = EntityVocabulary.build(sentences, entities, min_frequency=minimum, max_size=size)
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


def writable(options: RunOptions, model: Transducer, examples: Sequence[Example]) -> Sequence[Example]:
    """The examples whose outputs the head can write: of any other the likelihood is zero, and training goes nowhere.

    Raises:
        ConfigError: there is one that it cannot write, and options do not say to leave it out; or all are so.
    """
    kept, first = [], None
    for example in examples:
        problem = _not_writable(model, example)
        if problem is None:
            kept.append(example)
        else:
            first = first or problem
    if first and (not kept or options.training.overlong_targets == "error"):
        kind = options.model.head.kind
        longer = "raise model.head.max_segment_length, or " if kind in ("swan", "segments") else ""
        leave = (
            f"; or leave the {len(examples) - len(kept)} out with training.overlong_targets: skip"
            if kept
            else ""
        )
        raise ConfigError(f"{first} For such data {longer}use model.head.kind: ssnt{leave}.")
    return kept


def readable(options: RunOptions, model: Transducer, examples: Sequence[Example]) -> Sequence[Example]:
    """The examples whose sources the way back can write, from their outputs; all of them if there is no way back.

    Raises:
        ConfigError: there is one that it cannot write, and options do not say to leave it out; or all are so.
    """
    back = model.back
    if back is None:
        return examples
    turned = [replace(example, source=example.target, target=example.source) for example in examples]
    problems = [_not_writable(back, example) for example in turned]
    kept = [example for example, problem in zip(examples, problems, strict=True) if problem is None]
    first = next((problem for problem in problems if problem is not None), None)
    if first and (not kept or options.training.overlong_targets == "error"):
        raise ConfigError(
            f"in model.inverse, which reads outputs: {first} Raise model.inverse.head.max_segment_length, use "
            "model.inverse.head.kind: ssnt"
            + ("; or leave them out with training.overlong_targets: skip." if kept else ".")
        )
    return kept


def _not_writable(model: Transducer, example: Example) -> str | None:
    """Why the head cannot write an example's output; None if it can."""
    head: Head = model.head
    read, written = len(model.source.encode(example.source)), len(model.target.encode(example.target))
    if bool(head.supports_lengths(torch.tensor([read]), torch.tensor([written]))):
        return None
    if not read:
        return f"the source of example {example.id} of the training data is empty."
    longest = head.max_output_length(read)
    can = f"exactly {longest}" if head.preserves_length else f"at most {longest}"
    return (
        f"model.head.kind {model.options.head.kind} writes {can} words for a source of {read}, but example "
        f"{example.id} of the training data has {written} ({' '.join(example.source[:8])} ...)."
    )


def _subset(examples: Sequence[Example], count: int | None) -> Sequence[Example]:
    """A fixed random subset of the examples, in their order."""
    if count is None or count >= len(examples):
        return examples
    chosen = sorted(shuffled(range(len(examples)), Random("dev examples"))[:count])
    return [examples[index] for index in chosen]
