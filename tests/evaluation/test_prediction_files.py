import json
from math import inf

import pytest

from permalign.errors import DataError
from permalign.evaluation import JudgedPrediction, Report, read_predictions, write_predictions
from permalign.evaluation.prediction_files import write_reference_and_output
from permalign.tasks.base import Example

ANSWERS = (
    JudgedPrediction(Example(("a", "b"), ("x",), "7", {"depth": 3}), ("x", "y z"), -0.25, False, True, False),
    JudgedPrediction(Example(("彼", "。"), ("he", "."), "8"), (), -inf, False),
)


def test_written_predictions_are_read_again(tmp_path):
    path = tmp_path / "len" / "test.jsonl"
    write_predictions(path, Report({}, predictions=ANSWERS))
    assert read_predictions(path) == ANSWERS
    records = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert records[1] == {
        "id": "8",
        "source": ["彼", "。"],
        "target": ["he", "."],
        "output": [],
        "score": None,
        "correct": False,
    }
    assert list(path.parent.iterdir()) == [path]
    assert "彼" in path.read_text()  # letters as they are, for people who read the file


def test_references_and_outputs_are_written_one_sentence_a_line(tmp_path):
    references, outputs = write_reference_and_output(tmp_path, "test", Report({}, predictions=ANSWERS))
    assert (references, outputs) == (tmp_path / "test.ref", tmp_path / "test.hyp")
    assert references.read_text().splitlines() == [answer.reference for answer in ANSWERS]
    assert outputs.read_text().splitlines() == [answer.text for answer in ANSWERS]


GOOD = {"id": "1", "source": ["a"], "target": ["b"], "output": ["b"], "score": -1, "correct": True}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[", "line 2: the line is not JSON"),
        ("[" * 100_000, "line 2: the line is not JSON"),
        ("[1]", "line 2: expected a JSON object"),
        ("", "line 2: the line is empty"),
        (json.dumps({"source": "a", "target": "b"}), "line 2"),
        (
            json.dumps({name: value for name, value in GOOD.items() if name != "output"}),
            "line 2: 'output' is missing",
        ),
        (
            json.dumps({**GOOD, "output": "b c"}),
            "line 2: is not a prediction: output should be a list of strings",
        ),
        (
            json.dumps({**GOOD, "source": ["a", 3]}),
            "line 2: is not a prediction: source should be a list of strings",
        ),
        (json.dumps({**GOOD, "correct": "yes"}), "line 2: is not a prediction: expected true or false"),
        (json.dumps({**GOOD, "score": "high"}), "line 2: is not a prediction"),
    ],
)
def test_an_invalid_line_is_an_error_with_its_number(tmp_path, line, words):
    path = tmp_path / "dev.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + line + "\n")
    with pytest.raises(DataError, match=words):
        read_predictions(path)


def test_an_empty_file_is_an_error(tmp_path):
    (tmp_path / "dev.jsonl").write_text("")
    with pytest.raises(DataError, match="no predictions"):
        read_predictions(tmp_path / "dev.jsonl")
