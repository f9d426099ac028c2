"""Answers with their reasons, in the notation of the paper's table 5."""

from collections.abc import Sequence
from typing import Any

from permalign.reproduction.cells import Trial
from permalign.runs import Run
from permalign.structures import bracketed
from permalign.tasks.base import Example


def explained_examples(run: Run, trial: Trial) -> list[dict[str, Any]]:
    """Some examples of a split with their answers: source, reordered source, segments."""
    run.require_split(trial.split)
    examples = evenly_spaced(run.task.examples(trial.split), trial.shown)
    predictions = run.model.predict(
        [example.source for example in examples], beam=trial.beam, n_best=1, explain=True
    )
    shown = []
    for example, prediction in zip(examples, predictions, strict=True):
        reasons = prediction.explanation
        assert reasons is not None
        segments = (
            None if reasons.segments is None else bracketed(reasons.segments, reasons.source, reasons.target)
        )
        shown.append(
            {
                "id": example.id,
                "source": " ".join(example.source),
                "target": " ".join(example.target),
                "output": prediction.text,
                "correct": run.task.is_correct(example, prediction.tokens),
                "reordered": None if reasons.reordered is None else " ".join(reasons.reordered),
                "source_segments": segments and segments[0],
                "output_segments": segments and segments[1],
            }
        )
    return shown


def evenly_spaced(examples: Sequence[Example], count: int) -> list[Example]:
    """So many examples, from all parts of the sequence.

    >>> evenly_spaced(range(10), 3)
    [1, 5, 8]
    """
    count = min(count, len(examples))
    return [examples[(2 * place + 1) * len(examples) // (2 * count)] for place in range(count)]
