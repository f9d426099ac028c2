"""From options to what a loop needs: the data as batches, and a new model."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from random import Random

import torch

from permalign.errors import ConfigError
from permalign.evaluation import main_metric, report_of
from permalign.evaluation.metrics import TRANSLATION_METRICS, is_translation
from permalign.heads.base import Head
from permalign.model import Transducer
from permalign.tasks.base import Example, Task
from permalign.tasks.registry import no_such
from permalign.tasks.seeded import shuffled
from permalign.text.batching import Batches
from permalign.text.codec import SPECIALS, Codec
from permalign.text.subwords import Subwords
from permalign.text.vocabulary import Vocabulary
from permalign.training.options import RunOptions, SideOptions
from permalign.training.state import fingerprint

DEFAULT_PIECES = 8000
METRICS = ("exact_match", "token_accuracy", "execution_accuracy", "well_formed")


@dataclass(frozen=True)
class Prepared:
    """What a run is about.

    Attributes:
        task: what judges answers.
        batches: of the training split.
        dev: the examples to evaluate on.
        model: new, its weights drawn with the seed.
        metric: what is best on dev.
        data: a fingerprint of the training split, to know it again.
    """

    task: Task
    batches: Batches
    dev: Sequence[Example]
    model: Transducer
    metric: str
    data: str

    def total_steps(self, options: RunOptions, processes: int) -> int:
        """How many updates the run has."""
        training = options.training
        limits = [training.steps] if training.steps is not None else []
        if training.epochs is not None:
            limits.append(ceil(training.epochs * len(self.batches) / (training.accumulate * processes)))
        return min(limits)


def prepare(options: RunOptions) -> Prepared:
    """Read the data, learn the vocabularies and make the model."""
    task = options.make_task()
    _require_possible_metric(options, task)
    options.require_split(task)
    examples, dev = task.examples(options.train), task.examples(options.dev)
    for option, some in (("train", examples), ("dev", dev)):
        if not some:
            raise ConfigError(
                f"{option}: the split {getattr(options, option)} of {task.name} has no examples."
            )
    source = learn_codec(options.text.source, [example.source for example in examples])
    target = learn_codec(options.text.target, [example.target for example in examples])
    torch.manual_seed(options.seed)
    model = Transducer(options.model, source, target)
    _require_writable(model, examples)
    return Prepared(
        task,
        _batches(options, examples, source, target),
        _some(dev, options.training.dev_examples),
        model,
        _metric(options, task, dev),
        fingerprint((example.source, example.target) for example in examples),
    )


def _require_possible_metric(options: RunOptions, task: Task) -> None:
    """Name a metric that no data could have, before any is read."""
    possible = (*METRICS, *(TRANSLATION_METRICS if is_translation(task) else ()))
    metric = options.training.metric
    if metric is not None and metric not in possible:
        raise ConfigError("training.metric: " + no_such(f"metric of {task.name}", metric, possible))


def _metric(options: RunOptions, task: Task, dev: Sequence[Example]) -> str:
    """What is best on dev, seen to be one that the task has."""
    metric = options.training.metric or main_metric(task)
    known = report_of(task, [(dev[0], dev[0].target, 0.0)]).metrics
    if metric not in known:
        raise ConfigError("training.metric: " + no_such(f"metric of {task.name}", metric, known))
    return metric


def learn_codec(options: SideOptions, sentences: Sequence[Sequence[str]]) -> Codec:
    """Words or pieces of words, from the training sentences of one side."""
    if options.kind == "subwords":
        try:
            return Subwords.train(sentences, options.size or DEFAULT_PIECES, kind=options.algorithm)
        except ValueError as error:
            raise ConfigError(f"text: {error}") from None
    vocabulary = Vocabulary.build(sentences, minimum_count=options.minimum_count, maximum_size=options.size)
    if len(vocabulary) == len(SPECIALS):
        raise ConfigError(
            f"text: no word of the training data occurs {options.minimum_count} times. Lower minimum_count."
        )
    return vocabulary


def _batches(options: RunOptions, examples: Sequence[Example], source: Codec, target: Codec) -> Batches:
    training = options.training
    try:
        return Batches(
            examples,
            source,
            target,
            training.token_budget,
            seed=options.seed,
            maximum_examples=training.batch_size,
            short_to_long=training.short_to_long,
        )
    except ValueError as error:
        raise ConfigError(f"training.token_budget: {error}") from None


def _require_writable(model: Transducer, examples: Sequence[Example]) -> None:
    """Every output is one that the head can write; otherwise its likelihood is zero, and training goes nowhere."""
    head: Head = model.head
    for example in examples:
        read, written = len(model.source.encode(example.source)), len(model.target.encode(example.target))
        longest = head.longest_output(read)
        if longest is None or (written == longest if head.same_length else written <= longest):
            continue
        kind = model.options.head.kind
        can = f"exactly {longest}" if head.same_length else f"at most {longest}"
        way_out = (
            "raise model.head.longest_segment, or use model.head.kind: ssnt"
            if kind == "swan"
            else "use model.head.kind: ssnt"
        )
        raise ConfigError(
            f"model.head.kind {kind} writes {can} words for a source of {read}, but example {example.id} of the "
            f"training data has {written} ({' '.join(example.source[:8])} ...). For such data {way_out}."
        )


def _some(examples: Sequence[Example], count: int | None) -> Sequence[Example]:
    """So many of the examples, always the same ones, in their order."""
    if count is None or count >= len(examples):
        return examples
    chosen = sorted(shuffled(range(len(examples)), Random("dev examples"))[:count])
    return [examples[place] for place in chosen]
