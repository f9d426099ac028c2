import sys

import pytest

from permalign.errors import DataError, PermalignError
from permalign.tasks.file_readers import read_table
from permalign.tasks.tatoeba import Tatoeba, chinese_tokenizer, read_tatoeba, tokenize_english


@pytest.fixture(scope="module")
def tatoeba(data_dir):
    return Tatoeba(data_dir)


def test_every_pair_and_split_is_the_expected_one(tatoeba, data_dir):
    table = read_table(data_dir / "zh-en" / "expected" / "tatoeba.tsv", 5, header=True)
    examples = tatoeba.data.examples
    part_of = {split: {example.id for example in tatoeba.examples(split)} for split in tatoeba.splits}
    assert len(examples) == len(table.rows) == 28_673
    for example, (_, (chinese, english, iid, length, attribution)) in zip(examples, table.rows, strict=True):
        assert " ".join(example.source) == chinese
        assert " ".join(example.target) == english
        assert example.meta["attribution"] == attribution
        assert example.id in part_of[f"iid/{iid}"]
        assert example.id in part_of[f"len/{length}"]


def test_the_sizes_and_what_was_left_out(tatoeba):
    assert [len(tatoeba.examples(split)) for split in tatoeba.splits] == [27_673, 500, 500, 27_515, 579, 579]
    assert tatoeba.notes[0].endswith("left out 382 pairs by length and 100 repeated ones, kept 28,673.")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("School begins at 8:30 a.m.", "school begins at 8 : 30 a.m."),
        ("It's ten o'clock.", "it 's ten o ' clock ."),
        ("He gave me 10,000 yen; really?!", "he gave me 10,000 yen ; really ? !"),
        ("That’s a T-shirt", "that 's a t-shirt"),
        ("", ""),
    ],
)
def test_english_is_split_into_words_clitics_and_punctuation(text, tokens):
    assert " ".join(tokenize_english(text)) == tokens


def test_chinese_is_simplified_lower_cased_and_split_into_words():
    assert chinese_tokenizer()("你要這件T恤　嗎？") == ("你", "要", "这件", "t", "恤", "吗", "？")


def test_a_file_that_does_not_fit_the_splits_is_an_error(tmp_path):
    (tmp_path / "zh-en").mkdir()
    line = "I am fine today.\t我今天很好。\tCC-BY 2.0 (France) Attribution: tatoeba.org #1 (A) & #2 (B (C))\n"
    path = tmp_path / "zh-en" / "cmn.txt"
    path.write_text(line * 2, encoding="utf-8")
    examples, note = read_tatoeba(path)
    assert [example.meta for example in examples] == [{"attribution": "#1 A & #2 B (C)"}]
    assert "1 repeated" in note
    with pytest.raises(
        DataError, match="contains 1 usable pairs, but the splits were made for a file with 28,673"
    ):
        Tatoeba(tmp_path).examples("iid/dev")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Hello there you.\t你好吗\n", "expected 3 tab-separated columns"),
        ("I am fine .\t我很好。\tme\n", "attribution like"),
    ],
)
def test_a_malformed_line_is_an_error(tmp_path, line, words):
    path = tmp_path / "cmn.txt"
    path.write_text("I am here.\t我在这里。\t#1 (A) & #2 (B)\n" + line, encoding="utf-8")
    with pytest.raises(DataError, match=words) as caught:
        read_tatoeba(path)
    assert caught.value.line == 2


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opencc", None)
    with pytest.raises(PermalignError, match=r'needs opencc: pip install "permalign\[chinese\]"'):
        chinese_tokenizer()
