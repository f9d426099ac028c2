import json
import sys

import pytest

from permalign.errors import DataError, PermalignError
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, UNKNOWN_ID, report_unknown
from permalign.text.loading import load_codec
from permalign.text.subwords import Subwords

CORPUS = [
    f"the {animal} {verb}s .".split() for animal in ("cat", "dog", "cow") for verb in ("run", "walk", "jump")
]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def subwords(request):
    return Subwords.train(CORPUS, 40, algorithm=request.param)


def test_decoding_restores_sentences(subwords):
    for sentence in [*CORPUS, ["cats", "walkjump", "."], []]:
        numbers = subwords.encode(sentence)
        assert all(UNKNOWN_ID < number < len(subwords) for number in numbers)
        assert subwords.decode([BEGIN_ID, *numbers, END_ID, PADDING_ID]) == tuple(sentence)


def test_training_is_deterministic(subwords):
    assert Subwords.train(CORPUS, 40) == Subwords.train(CORPUS, 40)


def test_unknown_characters_are_counted(subwords):
    report = report_unknown(subwords, [["the", "猫"]])
    assert report.total == len(subwords.encode(["the", "猫"]))
    assert (report.unknown, report.most_frequent) == (1, ("猫",))
    assert subwords.decode(subwords.encode(["the", "猫"])) == ("the", "<unk>")


def test_saved_subwords_are_loaded(subwords, tmp_path):
    subwords.save(tmp_path / "subwords.json")
    assert Subwords.load(tmp_path / "subwords.json") == load_codec(tmp_path / "subwords.json") == subwords


def test_a_vocabulary_that_is_too_small_is_an_error():
    with pytest.raises(ValueError, match="could not learn 5 subwords"):
        Subwords.train(CORPUS, 5)


def test_training_without_sentences_is_an_error():
    with pytest.raises(ValueError, match="could not learn 40 subwords"):
        Subwords.train([], 40)


@pytest.mark.parametrize("content", ["?", "AAAA", 3])
def test_another_file_is_an_error(tmp_path, content):
    path = tmp_path / "subwords.json"
    path.write_text(json.dumps({"format": "permalign subwords", "version": 1, "content": content}))
    with pytest.raises(DataError, match="does not hold a SentencePiece model"):
        Subwords.load(path)


def test_a_missing_library_is_an_error_with_the_command_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(PermalignError, match=r"pip install .permalign\[subwords\]"):
        Subwords.train(CORPUS, 40)
