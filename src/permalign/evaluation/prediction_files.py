"""Read and write files of predictions, as JSON lines, and as plain text for other tools."""

import json
from collections.abc import Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

from permalign.errors import DataError
from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.report import Report
from permalign.files import write_lines
from permalign.tasks.base import Example
from permalign.tasks.file_readers import read_text

JUDGEMENTS = ("executes_right", "well_formed")


def write_predictions(path: str | Path, report: Report) -> None:
    """Write one JSON object per line, with id, source, target, output, score and judgements; the write is atomic."""
    write_lines(Path(path), (prediction_line(prediction) for prediction in report.predictions))


def prediction_line(prediction: JudgedPrediction) -> str:
    """Write a prediction as a line of JSON, without the line end; a score of -inf becomes null.

    >>> prediction_line(JudgedPrediction(Example(("a", "b"), ("x",), "7"), ("x",), -0.5, True))
    '{"id": "7", "source": ["a", "b"], "target": ["x"], "output": ["x"], "score": -0.5, "correct": true}'
    """
    example = prediction.example
    record: dict[str, object] = {
        "id": example.id,
        "source": example.source,
        "target": example.target,
        "output": prediction.tokens,
        "score": prediction.score if isfinite(prediction.score) else None,
        "correct": prediction.correct,
    }
    record |= {
        name: getattr(prediction, name) for name in JUDGEMENTS if getattr(prediction, name) is not None
    }
    if example.meta:
        record["meta"] = dict(example.meta)
    return json.dumps(record, ensure_ascii=False)


def read_predictions(path: str | Path) -> tuple[JudgedPrediction, ...]:
    """Read a file that `write_predictions` wrote; an invalid line raises a `DataError` that gives its number."""
    predictions = tuple(_prediction(text, Path(path), number) for number, text in read_text(path).lines)
    if not predictions:
        raise DataError("the file has no predictions.", path)
    return predictions


def write_reference_and_output(folder: str | Path, name: str, report: Report) -> tuple[Path, Path]:
    """Write references and outputs to ``name.ref`` and ``name.hyp``, one sentence per line; returns both paths."""
    references, outputs = (Path(folder) / f"{name}.{kind}" for kind in ("ref", "hyp"))
    write_lines(references, (prediction.reference for prediction in report.predictions))
    write_lines(outputs, (prediction.text for prediction in report.predictions))
    return references, outputs


def _prediction(text: str, path: Path, number: int) -> JudgedPrediction:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise DataError("the line is not JSON.", path, number) from None
    if not isinstance(record, dict):
        raise DataError("expected a JSON object with id, source, target, output.", path, number)
    try:
        example = Example(
            _tokens(record, "source"), _tokens(record, "target"), str(record["id"]), record.get("meta") or {}
        )
        score = record["score"]
        return JudgedPrediction(
            example,
            _tokens(record, "output"),
            -inf if score is None else float(score),
            _boolean(record["correct"]),
            **{name: _boolean(record[name]) for name in JUDGEMENTS if record.get(name) is not None},
        )
    except KeyError as error:
        raise DataError(
            f"{error.args[0]!r} is missing; is this a file of predictions?", path, number
        ) from None
    except (TypeError, ValueError) as error:
        raise DataError(f"is not a prediction: {error}", path, number) from None


def _tokens(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = record[name]
    if not isinstance(value, list) or not all(isinstance(token, str) for token in value):
        raise ValueError(f"{name} should be a list of strings, found {str(value)[:80]!r}.")
    return tuple(value)


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {str(value)[:80]!r}.")
    return value
