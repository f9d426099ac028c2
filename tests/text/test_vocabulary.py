import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from permalign.errors import DataError
from permalign.tasks.grammar import END as GRAMMAR_END
from permalign.text.codec import (
    BEGIN_ID,
    END,
    END_ID,
    PADDING_ID,
    SPECIALS,
    UNKNOWN_ID,
    report_unknown,
)
from permalign.text.loading import load_codec
from permalign.text.vocabulary import Vocabulary

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
sentences = st.lists(st.lists(words.filter(lambda word: word not in SPECIALS)))


@given(sentences)
def test_decoding_restores_words_of_the_vocabulary(corpus):
    vocabulary = Vocabulary.build(corpus)
    for sentence in corpus:
        numbers = vocabulary.encode(sentence)
        assert UNKNOWN_ID not in numbers
        assert vocabulary.decode([BEGIN_ID, *numbers, END_ID, PADDING_ID]) == tuple(sentence)


@given(sentences)
def test_a_saved_vocabulary_is_loaded(tmp_path_factory, corpus):
    path = tmp_path_factory.mktemp("vocabulary") / "words.json"
    vocabulary = Vocabulary.build(corpus)
    vocabulary.save(path)
    assert Vocabulary.load(path) == load_codec(path) == vocabulary
    assert [file.name for file in path.parent.iterdir()] == ["words.json"]


def test_rare_words_are_left_out_and_ties_are_in_alphabetical_order():
    corpus = [["b", "a", "c"], ["b", "a"], ["d", "b"]]
    assert Vocabulary.build(corpus).tokens == (*SPECIALS, "b", "a", "c", "d")
    assert Vocabulary.build(corpus, min_frequency=2).tokens == (*SPECIALS, "b", "a")
    assert Vocabulary.build(corpus, max_size=1).tokens == (*SPECIALS, "b")


@pytest.mark.parametrize("special", SPECIALS)
def test_a_special_token_in_the_text_is_unknown(special):
    vocabulary = Vocabulary.build([["a", special]])
    assert len(vocabulary) == 5
    assert special not in vocabulary
    assert vocabulary.encode(["a", special]) == [4, UNKNOWN_ID]


def test_the_end_symbol_is_that_of_grammars():
    assert END == GRAMMAR_END


def test_unknown_words_are_counted():
    vocabulary = Vocabulary(["a"])
    report = report_unknown(vocabulary, [["a", "x", "y"], ["y"]])
    assert (report.total, report.unknown, report.most_frequent) == (4, 3, ("y", "x"))
    assert str(report) == "3 of 4 tokens (75.0%) are unknown, most often: y x"
    assert str(report_unknown(vocabulary, [])) == "0 of 0 tokens (0.0%) are unknown"


def test_repeated_words_are_an_error():
    with pytest.raises(ValueError, match="but 'a' does not"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(ValueError, match="but '<pad>' does not"):
        Vocabulary(["<pad>"])


def test_ids_out_of_range_are_an_error():
    with pytest.raises(ValueError, match="from 0 to 4, found 5"):
        Vocabulary(["a"]).decode([4, 5])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a vocabulary"),
        (json.dumps({"format": "permalign subwords", "version": 1}), "is not a vocabulary"),
        (json.dumps({"format": "permalign vocabulary", "version": 2, "content": []}), "has version 2"),
        (
            json.dumps({"format": "permalign vocabulary", "version": 1, "content": "ab"}),
            "a list of words as strings",
        ),
        (
            json.dumps({"format": "permalign vocabulary", "version": 1, "content": [1]}),
            "a list of words as strings",
        ),
        (json.dumps({"format": "permalign vocabulary", "version": 1, "content": ["a", "a"]}), "'a' does not"),
    ],
)
def test_another_file_is_an_error(tmp_path, content, words):
    path = tmp_path / "words.json"
    path.write_text(content)
    with pytest.raises(DataError, match=words) as caught:
        Vocabulary.load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_codec_of_another_kind_is_an_error(tmp_path):
    path = tmp_path / "words.json"
    path.write_text('{"format": "permalign cipher", "version": 1}')
    with pytest.raises(DataError, match="is not a vocabulary or subwords or named words or "):
        load_codec(path)


def test_a_path_that_cannot_be_read_or_written_is_an_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        Vocabulary.load(tmp_path / "nothing.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/words.json: cannot be written"):
        Vocabulary(["a"]).save(tmp_path / "file" / "words.json")
