import pytest

from permalign.errors import DataError
from permalign.tasks.aligned_files import read_aligned
from permalign.tasks.file_readers import read_table
from permalign.tasks.translation import Aligned, ChineseEnglish, EnglishJapanese


def sizes(task):
    return {split: len(task.examples(split)) for split in task.splits}


@pytest.fixture
def aligned(tmp_path):
    def write(sources, targets):
        paths = tmp_path / "text.zh", tmp_path / "text.en"
        for path, sentences in zip(paths, (sources, targets), strict=True):
            path.write_text("".join(sentence + "\n" for sentence in sentences), encoding="utf-8")
        return paths

    return write


@pytest.fixture(scope="module")
def english_japanese(data_dir):
    return EnglishJapanese(data_dir)


def test_english_japanese_has_the_sizes_of_the_paper(english_japanese):
    assert sizes(english_japanese) == {
        "iid/train": 50_000,
        "iid/dev": 500,
        "iid/test": 500,
        "len/train": 49_924,
        "len/dev": 538,
        "len/test": 538,
    }


def test_english_japanese_halves_are_the_expected_ones(english_japanese, data_dir):
    table = read_table(data_dir / "en-ja" / "expected" / "len_split.tsv", 2, header=True)
    expected = {place: part for _, (place, part) in table.rows}
    for part in ("dev", "test"):
        examples = english_japanese.examples(f"len/{part}")
        assert {example.id for example in examples} == {
            place for place in expected if expected[place] == part
        }
        assert min(len(example.source) for example in examples) >= 13
    assert max(len(example.source) for example in english_japanese.examples("len/train")) == 12


def test_english_japanese_pairs_belong_together(english_japanese):
    first = english_japanese.examples("iid/dev")[0]
    assert first.id == "50000"
    assert " ".join(first.source) == "show your own business ."
    assert " ".join(first.target) == "自分 の 事 を しろ 。"


def test_english_japanese_files_of_another_corpus_are_an_error(tmp_path):
    (tmp_path / "en-ja").mkdir()
    for part in ("train", "dev", "test"):
        for language in ("en", "ja"):
            (tmp_path / "en-ja" / f"{part}.{language}").write_text("one two three\n" * 3)
    with pytest.raises(DataError, match="not those of the released corpus"):
        EnglishJapanese(tmp_path).examples("iid/train")


def test_files_of_unequal_length_are_an_error_with_the_line(aligned):
    source, target = aligned(["a", "b"], ["x", "y", "z"])
    with pytest.raises(DataError) as caught:
        read_aligned(source, target)
    assert (caught.value.path, caught.value.line) == (target, 3)
    assert "text.zh has 2 lines, text.en 3" in str(caught.value)


def test_aligned_files_are_split_by_seed(aligned):
    paths = aligned([f"source {i}" for i in range(40)], [f"target {i}" for i in range(40)])
    task = Aligned(*paths)
    assert sizes(task) == {"iid/train": 32, "iid/dev": 4, "iid/test": 4}
    everything = [example for split in task.splits for example in task.examples(split)]
    assert sorted(int(example.id) for example in everything) == list(range(1, 41))
    for example in everything:
        assert example.source[1] == example.target[1] == str(int(example.id) - 1)
    assert Aligned(*paths).examples("iid/test") == task.examples("iid/test")
    assert Aligned(*paths, seed=1).examples("iid/test") != task.examples("iid/test")


def test_pairs_that_are_left_out_are_counted(aligned):
    paths = aligned(["a", "", "a b", "a b c", "a b c d", "a b c d e"], ["x", "y", "", "x", "x", "x"])
    task = Aligned(*paths, min_length=2, max_length=4, dev_size=0, test_size=1)
    assert sizes(task) == {"iid/train": 1, "iid/dev": 0, "iid/test": 1}
    note, *_ = task.notes
    assert note.endswith("left out 2 pairs with an empty side and 2 by length, kept 2.")


def test_sizes_that_leave_nothing_to_train_on_are_an_error(aligned):
    with pytest.raises(DataError, match="5 dev and 1 test examples leave nothing to train on"):
        Aligned(*aligned("abc", "xyz"), dev_size=5).examples("iid/train")


def test_empty_files_are_an_error(aligned):
    with pytest.raises(DataError, match="there are no usable examples"):
        Aligned(*aligned([], [])).examples("iid/train")


def test_chinese_english_is_filtered_and_split_by_the_length_of_the_english(aligned):
    english = [" ".join(["w"] * (length % 33 + 1)) for length in range(330)]
    task = ChineseEnglish(*aligned(["字"] * 330, english), dev_size=20, test_size=30)
    assert sizes(task) == {
        "iid/train": 220,
        "iid/dev": 20,
        "iid/test": 30,
        "len/train": 260,
        "len/dev": 5,
        "len/test": 5,
    }
    lengths = {split: {len(example.target) for example in task.examples(split)} for split in task.splits}
    assert lengths["len/train"] == set(range(4, 30))
    assert lengths["len/dev"] == lengths["len/test"] == {30}
    assert task.notes[0].endswith("left out 0 pairs with an empty side and 60 by length, kept 270.")


def test_an_unknown_split_is_an_error(aligned):
    with pytest.raises(ValueError, match="aligned has no split 'len/test'; choose one of iid/train"):
        Aligned(*aligned("abc", "xyz")).examples("len/test")
