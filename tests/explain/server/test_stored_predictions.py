"""Examples, expected outputs and errors, from the predictions that a run has stored."""

import json

import pytest
from tests.explain.conftest import prediction

from permalign.explain.server.stored_predictions import (
    choose_examples,
    find_expected,
    find_prediction_files,
    read_stored,
    select_page,
)


@pytest.fixture
def folder(tmp_path):
    """A run with two splits, and the predictions of a checkpoint."""
    for split, sources in (("dev", ["abc", "ab"]), ("len/test", ["abcde"]), ("step-1/len/test", ["a"])):
        path = tmp_path / "predictions" / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(prediction(source, source.upper())) for source in sources]
        path.write_text("\n".join(lines) + "\n")
    return tmp_path


def write(folder, pairs):
    path = folder / "predictions" / "dev.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(prediction(*pair)) + "\n" for pair in pairs))
    return path


def page(path, **changes):
    choice = {"only_wrong": False, "min_length": 0, "max_length": None, "start": 0, "count": 20}
    return select_page(path, **{**choice, **changes})


def test_files_are_found_by_split(folder):
    assert list(find_prediction_files(folder)) == ["dev", "len/test"]
    assert find_prediction_files(folder / "nowhere") == {}


def test_wrong_predictions_come_first_and_then_short_ones(tmp_path):
    path = write(tmp_path, [("abcd", "DCBA"), ("ab", "BA"), ("abcde", "X"), ("abc", "X")])
    found = page(path)
    assert [row.sentence for row in found.predictions] == ["a b c", "a b c d e", "a b", "a b c d"]
    assert (found.examples, found.wrong, found.found, found.max_length) == (4, 2, 4, 5)
    assert [row.sentence for row in page(path, only_wrong=True, min_length=4).predictions] == ["a b c d e"]
    assert [row.sentence for row in page(path, max_length=2).predictions] == ["a b"]
    assert [row.sentence for row in page(path, start=1, count=2).predictions] == ["a b c d e", "a b"]
    assert page(path, start=9).predictions == ()


def test_the_expected_output_of_a_sentence_is_found(folder):
    files = list(find_prediction_files(folder).values())
    assert find_expected(files, " a  b c ") == "C B A"
    assert find_expected(files, "c b a") is None


def test_a_broken_file_has_no_predictions(tmp_path):
    path = tmp_path / "broken.jsonl"
    for content in ("", "{", '{"source": 3}\n', "\xff"):
        path.write_text(content, encoding="latin-1")
        read_stored.cache_clear()
        assert read_stored(path) == ()


def test_examples_have_different_lengths(tmp_path):
    path = write(tmp_path, [("abcdefgh"[: 1 + number % 8], "X") for number in range(40)])
    assert [len(sentence.split()) for sentence in choose_examples(tmp_path, [path])] == [2, 4, 5, 6, 8]


def test_long_sentences_are_offered_if_there_are_no_others(tmp_path):
    path = write(tmp_path, [("x" * length, "X") for length in (40, 30, 50)])
    assert [len(sentence.split()) for sentence in choose_examples(tmp_path, [path])] == [30, 40, 50]
    assert choose_examples(tmp_path, []) == ()


def test_a_folder_may_name_its_examples(tmp_path):
    (tmp_path / "examples.txt").write_text("12 march 2021\n\nmarch 12 , 2021\n")
    assert choose_examples(tmp_path, []) == ("12 march 2021", "march 12 , 2021")
