"""Example outputs with their reordered sources and segments, in the notation of the paper's table 5."""

from collections.abc import Sequence
from typing import Any

from permalign.reproduction.cells import Evaluation
from permalign.structures import bracketed
from permalign.tasks.base import Example
from permalign.training.trained_run import TrainedRun


def explain_examples(run: TrainedRun, evaluation: Evaluation) -> list[dict[str, Any]]:
    """Predict outputs for some examples of a split; returns records with reordered sources and segments."""
    run.require_split(evaluation.split)
    examples = evenly_spaced(run.task.examples(evaluation.split), evaluation.explained)
    predictions = run.model.predict(
        [example.source for example in examples],
        beam=evaluation.beam,
        length_penalty=evaluation.length_penalty,
        explain=True,
    )
    records = []
    for example, prediction in zip(examples, predictions, strict=True):
        explanation = prediction.explanation
        assert explanation is not None
        segments = (
            None
            if explanation.segments is None
            else bracketed(explanation.segments, explanation.source, explanation.target)
        )
        records.append(
            {
                "id": example.id,
                "source": " ".join(example.source),
                "target": " ".join(example.target),
                "output": prediction.text,
                "correct": run.task.is_correct(example, prediction.tokens),
                "reordered": None if explanation.reordered is None else " ".join(explanation.reordered),
                "source_segments": segments and segments[0],
                "output_segments": segments and segments[1],
            }
        )
    return records


def evenly_spaced(examples: Sequence[Example], count: int) -> list[Example]:
    """Select at most ``count`` examples at equal distances.

    >>> evenly_spaced(range(10), 3)
    [1, 5, 8]
    """
    count = min(count, len(examples))
    return [examples[(2 * index + 1) * len(examples) // (2 * count)] for index in range(count)]
