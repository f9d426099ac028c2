"""The predictions that runs have stored: examples to try, expected outputs, and a browser of errors.

Only files that were found when the server started are read, each once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from permalign.errors import PermalignError
from permalign.evaluation import JudgedPrediction, read_predictions
from permalign.evaluation.example_sentences import NUM_EXAMPLES, choose_sentences
from permalign.training.run_directory import EXAMPLES


@dataclass(frozen=True)
class StoredPrediction:
    """A prediction of a run.

    Attributes:
        sentence: the words of the sentence.
        expected: the expected output.
        output: the output of the model.
        correct: whether the task accepts the output.
        length: the number of words of the sentence.
    """

    sentence: str
    expected: str
    output: str
    correct: bool
    length: int


@dataclass(frozen=True)
class PredictionsPage:
    """Some predictions of a split, wrong ones first, then by length.

    Attributes:
        examples: the number of all predictions of the split.
        wrong: how many of them are wrong.
        found: how many of them fit the filter.
        max_length: the number of words of the longest sentence.
        predictions: the predictions of this page.
    """

    examples: int
    wrong: int
    found: int
    max_length: int
    predictions: tuple[StoredPrediction, ...]


def find_prediction_files(folder: Path) -> dict[str, Path]:
    """The files of a run's predictions by split; those of particular checkpoints are left out."""
    root = folder / "predictions"
    found = {
        path.relative_to(root).with_suffix("").as_posix(): path for path in sorted(root.rglob("*.jsonl"))
    }
    return {split: path for split, path in found.items() if split == "dev" or split.count("/") == 1}


@lru_cache(maxsize=32)
def read_stored(path: Path) -> tuple[StoredPrediction, ...]:
    """Read a file of predictions, wrong ones first, then by length; a file that cannot be read has none."""
    try:
        predictions = [_stored(prediction) for prediction in read_predictions(path)]
    except (PermalignError, OSError):
        return ()
    return tuple(sorted(predictions, key=lambda stored: (stored.correct, stored.length)))


def _stored(prediction: JudgedPrediction) -> StoredPrediction:
    example = prediction.example
    return StoredPrediction(
        " ".join(example.source),
        " ".join(example.target),
        " ".join(prediction.tokens),
        prediction.correct,
        len(example.source),
    )


def select_page(
    path: Path, *, only_wrong: bool, min_length: int, max_length: int | None, start: int, count: int
) -> PredictionsPage:
    """Select the predictions of a file that fit a filter, from number ``start`` on."""
    every = read_stored(path)
    found = [
        stored
        for stored in every
        if not (only_wrong and stored.correct)
        and min_length <= stored.length
        and (max_length is None or stored.length <= max_length)
    ]
    return PredictionsPage(
        len(every),
        sum(not stored.correct for stored in every),
        len(found),
        max((stored.length for stored in every), default=0),
        tuple(found[start : start + count]),
    )


def find_expected(paths: Sequence[Path], sentence: str) -> str | None:
    """The expected output of a sentence that occurs in one of the files; None if none has it."""
    words = " ".join(sentence.split())
    return next(
        (stored.expected for path in paths for stored in read_stored(path) if stored.sentence == words), None
    )


def choose_examples(folder: Path, files: Sequence[Path]) -> tuple[str, ...]:
    """Choose sentences to offer: those that the folder names, or some of different lengths from its predictions."""
    try:
        named = (folder / EXAMPLES).read_text(encoding="utf-8").splitlines()
        return tuple(line for line in named if line.strip())[:NUM_EXAMPLES]
    except (OSError, UnicodeDecodeError):
        return choose_sentences(stored.sentence.split() for path in files[:1] for stored in read_stored(path))
