import json

import pytest

from permalign.errors import DataError
from permalign.tasks.base import Example
from permalign.tasks.translation import ChineseEnglishDocs
from permalign.tasks.user_data import UserData


@pytest.fixture
def write(tmp_path):
    def write_text(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_text


def test_json_lines_with_splits(write):
    path = write(
        "own.jsonl",
        '{"source": "a b", "target": ["x", "y z"], "split": "train", "author": "me", "id": 7}\n'
        '{"source": ["c"], "target": "z", "split": "test"}\n',
    )
    task = UserData(path)
    assert task.splits == ("iid/train", "iid/dev", "iid/test")
    assert task.examples("iid/train") == [Example(("a", "b"), ("x", "y z"), "7", {"author": "me"})]
    assert task.examples("iid/dev") == []
    assert task.examples("iid/test") == [Example(("c",), ("z",), "2")]


def test_a_complete_surrogate_pair_is_one_character(write):
    path = write("own.jsonl", '{"source": "\\ud83d\\ude00", "target": "b", "split": "train"}\n')
    assert UserData(path).examples("iid/train")[0].source == ("😀",)


def test_tab_separated_values_without_splits_are_split_at_random(write):
    rows = "".join(f"{'w ' * (i % 5 + 1)}\tt{i}\n" for i in range(20))
    task = UserData(write("own.tsv", "source\ttarget\n" + rows), max_train_length=3)
    assert [len(task.examples(split)) for split in task.splits] == [16, 2, 2, 12, 4, 4]
    assert {len(example.source) for example in task.examples("len/test")} <= {4, 5}


def test_other_columns_can_be_the_source_and_the_target(write):
    path = write("own.tsv", "de\ten\tlen\nja\tyes\ttrain\nnein\tno\ttest\n")
    task = UserData(path, source_column="en", target_column="de")
    assert task.examples("len/test") == [Example(("no",), ("nein",), "3")]


def test_sizes_are_ignored_with_a_note_if_the_data_has_splits(write):
    path = write("own.tsv", "source\ttarget\tsplit\na\tb\ttrain\nc\td\tdev\n")
    assert UserData(path).notes == ()
    task = UserData(path, test_size=1)
    assert [len(task.examples(split)) for split in task.splits] == [1, 1, 0]
    assert task.notes[0].endswith("dev_size, test_size and max_train_length are ignored.")


def test_a_folder_has_one_file_for_each_split(write, tmp_path):
    write("folder/train.jsonl", '{"source": "a", "target": "b"}\n' * 2)
    write("folder/len/test.tsv", "source\ttarget\na\tb\n")
    task = UserData(tmp_path / "folder")
    assert task.splits == ("iid/train", "len/test")
    assert [len(task.examples(split)) for split in task.splits] == [2, 1]


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("own.jsonl", '{"source": "a", "target": "b"}\n{"source": \n', 2, "the line is not JSON"),
        ("own.jsonl", "[" * 100_000 + "\n", 1, "the line is not JSON"),
        ("own.jsonl", '{"source": "\\ud83d", "target": "b"}\n', 1, "half of a surrogate pair"),
        ("own.jsonl", "[1]\n", 1, "expected a JSON object with source and target, found a list"),
        ("own.jsonl", '{"source": "a"}\n', 1, "there is no column 'target' (found: source)"),
        (
            "own.jsonl",
            '{"source": "a", "target": 3}\n',
            1,
            "'target' should be a string or a list of strings",
        ),
        ("own.jsonl", '{"source": "a", "target": [""]}\n', 1, "'target' should be a string or a list"),
        ("own.jsonl", '{"source": "a", "target": " "}\n', 1, "'target' is empty"),
        ("own.jsonl", '{"source": "a", "target": "b"}\n\n', 2, "the line is empty"),
        (
            "own.jsonl",
            '{"source": "a", "target": "b", "split": "tset"}\n',
            1,
            "split should be train, dev or test",
        ),
        (
            "own.jsonl",
            '{"source": "a", "target": "b", "len": "dev"}\n{"source": "a", "target": "b"}\n',
            2,
            "expected the same split columns as in the lines before (len), found none",
        ),
        ("own.tsv", "source\ttarget\na\tb\tc\n", 2, "expected 2 tab-separated columns, found 3"),
        ("own.tsv", "quelle\tziel\na\tb\n", 2, "there is no column 'source' (found: quelle, ziel)"),
    ],
)
def test_malformed_lines_are_errors_with_file_and_line(write, name, text, line, words):
    path = write(name, text)
    with pytest.raises(DataError) as caught:
        UserData(path).examples("iid/train")
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("own.jsonl", "", "the file has no examples"),
        ("own.tsv", "source\ttarget\n", "the file has no examples"),
        ("own.csv", "source,target\n", "expected a file that ends in .jsonl"),
    ],
)
def test_a_file_without_examples_is_an_error(write, name, text, words):
    with pytest.raises(DataError) as caught:
        UserData(write(name, text)).examples("iid/train")
    assert words in str(caught.value)


def test_a_folder_without_files_or_with_two_for_a_split_is_an_error(write, tmp_path):
    with pytest.raises(DataError, match="the folder has no file that ends in"):
        UserData(tmp_path).examples("iid/train")
    for name in ("train.jsonl", "train.tsv"):
        write(name, json.dumps({"source": "a", "target": "b"}))
    with pytest.raises(
        DataError, match=r"is not expected here\. A folder may contain one file for each of train, dev, test"
    ):
        UserData(tmp_path).examples("iid/train")


def test_the_documentation_corpus(data_dir):
    task = ChineseEnglishDocs(data_dir)
    assert [len(task.examples(split)) for split in task.splits] == [88_195, 2_000, 2_000, 90_873, 661, 661]
    assert {len(example.target) for example in task.examples("len/test")} == {30}
    assert max(len(example.target) for example in task.examples("len/train")) == 29
    assert task.examples("iid/train")[0].meta == {"source": "python"}


def test_a_repeated_key_is_an_error(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"source": "a", "target": "b"}\n{"source": "a", "source": "c", "target": "b"}\n')
    with pytest.raises(DataError, match=r"line 2: the key 'source' occurs twice"):
        UserData(path).examples("iid/train")
