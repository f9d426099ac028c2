import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from permalign.errors import DataError
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS, UNKNOWN_ID, report_unknown
from permalign.text.entities import EntityVocabulary
from permalign.text.loading import load_codec
from permalign.text.vocabulary import Vocabulary

NAMES = {"york": "cityid", "new york": "cityid/stateid", "new york city": "cityid", "utah": "stateid"}
QUESTIONS = [sentence.split() for sentence in ("rivers in utah", "new rivers", "cities of new york city")]


@pytest.fixture
def words():
    return EntityVocabulary.build(QUESTIONS, NAMES)


def read(words, sentence):
    return words.convert_ids_to_tokens(words.encode(sentence.split()))


@pytest.mark.parametrize(
    ("sentence", "kinds", "units"),
    [
        ("rivers in utah", ["rivers", "in", "stateid"], ["rivers", "in", "utah"]),
        ("rivers in york", ["rivers", "in", "cityid"], ["rivers", "in", "york"]),
        ("of new york city", ["of", "cityid"], ["of", "new york city"]),
        ("new utah new", ["new", "stateid", "new"], ["new", "utah", "new"]),
        ("utah utah", ["stateid", "stateid"], ["utah", "utah"]),
        ("new york york", ["<unk>", "cityid"], ["new york", "york"]),
        ("", [], []),
    ],
)
def test_the_longest_name_is_replaced_by_its_kind(words, sentence, kinds, units):
    assert read(words, sentence) == kinds
    assert words.tokenize(sentence.split()) == units


def test_a_kind_that_is_not_in_training_is_unknown_and_names_are_not_words(words):
    assert words.encode(["new", "york"]) == [UNKNOWN_ID]
    assert len(words) == len(SPECIALS) + len({"rivers", "in", "stateid", "new", "cities", "of", "cityid"})


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6)))
def test_without_entities_it_equals_a_vocabulary(corpus):
    words, vocabulary = EntityVocabulary.build(corpus, {}), Vocabulary.build(corpus)
    for sentence in corpus:
        assert words.encode(sentence) == vocabulary.encode(sentence)
        assert words.tokenize(sentence) == sentence
        numbers = [BEGIN_ID, *words.encode(sentence), END_ID, PADDING_ID]
        assert words.decode(numbers) == vocabulary.decode(numbers)


def test_rare_words_are_left_out_and_kinds_count_as_words():
    words = EntityVocabulary.build(QUESTIONS, NAMES, min_frequency=2)
    assert read(words, "rivers in utah") == ["rivers", "<unk>", "<unk>"]
    assert len(EntityVocabulary.build(QUESTIONS, NAMES, max_size=1)) == len(SPECIALS) + 1


def test_a_saved_vocabulary_is_loaded(words, tmp_path):
    path = tmp_path / "source.json"
    words.save(path)
    assert EntityVocabulary.load(path) == load_codec(path) == words
    assert hash(load_codec(path)) == hash(words)
    assert words != EntityVocabulary.build(QUESTIONS, {})


@pytest.mark.parametrize(
    "content",
    [
        ["a"],
        {"words": ["a"]},
        {"words": "a", "names": {}},
        {"words": [1], "names": {}},
        {"words": [], "names": {"a": 1}},
    ],
)
def test_other_content_is_an_error(tmp_path, content):
    path = tmp_path / "source.json"
    path.write_text(json.dumps({"format": "permalign named words", "version": 1, "content": content}))
    with pytest.raises(DataError, match="expected"):
        load_codec(path)


@pytest.mark.parametrize(
    ("words", "names", "message"),
    [
        (["a", "a"], {}, "must differ"),
        ([], {"a b": "x", "a  b": "y"}, "must be distinct and have at least one word"),
        ([], {" ": "x"}, "have at least one word"),
    ],
)
def test_repeated_words_and_names_are_errors(tmp_path, words, names, message):
    path = tmp_path / "source.json"
    content = {"words": words, "names": names}
    path.write_text(json.dumps({"format": "permalign named words", "version": 1, "content": content}))
    with pytest.raises(DataError, match=message):
        load_codec(path)


def test_a_name_of_several_words_is_one_token(words):
    report = report_unknown(words, [["rivers", "in", "new", "york", "city"], ["new", "york"]])
    assert (report.total, report.unknown, report.most_frequent) == (4, 1, ("new york",))
