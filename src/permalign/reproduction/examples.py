"""Answers with the evidence behind them, in the notation of the paper's table 5."""

from collections.abc import Sequence
from typing import Any

from permalign.reproduction.cells import Evaluation
from permalign.structures import bracketed
from permalign.tasks.base import Example
from permalign.training.trained_run import TrainedRun


def explain_examples(run: TrainedRun, evaluation: Evaluation) -> list[dict[str, Any]]:
    """Some examples of a split with their outputs, reordered sources and segments."""
    run.require_split(evaluation.split)
    examples = evenly_spaced(run.task.examples(evaluation.split), evaluation.explained)
    predictions = run.model.predict(
        [example.source for example in examples], beam=evaluation.beam, n_best=1, explain=True
    )
    explained = []
    for example, prediction in zip(examples, predictions, strict=True):
        evidence = prediction.explanation
        assert evidence is not None
        segments = (
            None
            if evidence.segments is None
            else bracketed(evidence.segments, evidence.source, evidence.target)
        )
        explained.append(
            {
                "id": example.id,
                "source": " ".join(example.source),
                "target": " ".join(example.target),
                "output": prediction.text,
                "correct": run.task.is_correct(example, prediction.tokens),
                "reordered": None if evidence.reordered is None else " ".join(evidence.reordered),
                "source_segments": segments and segments[0],
                "output_segments": segments and segments[1],
            }
        )
    return explained


def evenly_spaced(examples: Sequence[Example], count: int) -> list[Example]:
    """At most ``count`` examples, taken from all parts of the sequence.

    >>> evenly_spaced(range(10), 3)
    [1, 5, 8]
    """
    count = min(count, len(examples))
    return [examples[(2 * index + 1) * len(examples) // (2 * count)] for index in range(count)]
