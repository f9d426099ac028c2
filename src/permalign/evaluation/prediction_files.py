"""Predictions as files: JSON lines to read back, plain text for other tools."""

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
from permalign.tasks.text_files import read_text

JUDGEMENTS = ("executes_right", "well_formed")


def write_predictions(path: str | Path, report: Report) -> None:
    """Write one JSON object a line: id, source, target, output, score, correct, and what else is known.

    The file appears complete or not at all, and replaces one that is there.
    """
    write_lines(Path(path), (prediction_line(prediction) for prediction in report.predictions))


def prediction_line(prediction: JudgedPrediction) -> str:
    """One prediction as a line of JSON, without its line end; a score of -inf is null.

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
    """The predictions that `write_predictions` wrote; anything else is a `DataError` with the line."""
    predictions = tuple(_prediction(text, Path(path), number) for number, text in read_text(path).lines)
    if not predictions:
        raise DataError("the file has no predictions.", path)
    return predictions


def write_text(folder: str | Path, name: str, report: Report) -> tuple[Path, Path]:
    """Write references and outputs as ``name.ref`` and ``name.hyp``, one sentence a line; returns their paths."""
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
            _truth(record["correct"]),
            **{name: _truth(record[name]) for name in JUDGEMENTS if record.get(name) is not None},
        )
    except KeyError as error:
        raise DataError(
            f"there is no {error.args[0]!r}; is it a file of predictions?", path, number
        ) from None
    except (TypeError, ValueError) as error:
        raise DataError(f"is no prediction: {error}", path, number) from None


def _tokens(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = record[name]
    if not isinstance(value, list) or not all(isinstance(token, str) for token in value):
        raise ValueError(f"{name} should be a list of strings, found {str(value)[:80]!r}.")
    return tuple(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {str(value)[:80]!r}.")
    return value
