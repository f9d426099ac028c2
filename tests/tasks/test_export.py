import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from permalign.errors import DataError
from permalign.tasks.base import Example, Task
from permalign.tasks.export import example_line, write_task
from permalign.tasks.split_statistics import task_statistics
from permalign.tasks.user_data import UserData


class Toy(Task):
    name = "toy"
    description = "a toy"
    splits = ("iid/train", "len/train", "len/test")

    def examples(self, split):
        if split == "len/test":
            return [Example(("a", "b c", "d"), ("x",), "1", {"depth": 2, "author": "ü"})]
        return [Example(("a",), ("x", "y"), "0"), Example(("a", "b"), ("x",), "1")]


class Broken(Toy):
    def examples(self, split):
        if split == "len/test":
            raise DataError("is broken", "somewhere")
        return super().examples(split)


def test_what_is_written_reads_back(tmp_path):
    paths = write_task(Toy(), tmp_path / "new" / "folder")
    assert [path.relative_to(tmp_path / "new" / "folder").as_posix() for path in paths] == [
        "iid/train.jsonl",
        "len/train.jsonl",
        "len/test.jsonl",
    ]
    task = UserData(tmp_path / "new" / "folder")
    assert set(task.splits) == {*Toy.splits, "iid/dev", "len/dev"}  # dev is held out where it is missing
    for split in Toy.splits:
        assert task.examples(split) == Toy().examples(split)


def test_nothing_is_overwritten_unless_asked(tmp_path):
    target = tmp_path / "len" / "train.jsonl"
    target.parent.mkdir()
    target.write_text("mine")
    with pytest.raises(DataError, match=r"train\.jsonl: already exists"):
        write_task(Toy(), tmp_path)
    assert target.read_text() == "mine"
    assert not (tmp_path / "iid").exists()
    write_task(Toy(), tmp_path, overwrite=True)
    assert target.read_text() != "mine"


def test_a_failure_leaves_no_half_files(tmp_path):
    with pytest.raises(DataError, match="is broken"):
        write_task(Broken(), tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["train.jsonl"] * 2
    assert not (tmp_path / "len" / "test.jsonl").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_task(Toy(), tmp_path / "file")


def test_files_have_the_usual_permissions(tmp_path):
    umask = os.umask(0o022)
    try:
        path = write_task(Toy(), tmp_path)[0]
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o644


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_any_tokens_survive_a_line(tokens):
    line = example_line(Example(tuple(tokens), ("x",), "0"))
    assert "\n" not in line
    source = json.loads(line)["source"]
    assert (source.split() if isinstance(source, str) else source) == tokens


def test_a_condition_without_train_has_nothing_unseen():
    class TestOnly(Toy):
        splits = ("len/test",)

    (test,) = task_statistics(TestOnly())
    assert test.source.unseen is test.target.unseen is None


def test_statistics_count_what_training_does_not_show():
    train, _, test = task_statistics(Toy())
    assert (train.split, train.examples) == ("iid/train", 2)
    assert (train.source.mean_length, train.source.max_length, train.source.vocab_size) == (1.5, 2, 2)
    assert train.source.unseen == 0
    assert test.source.unseen == pytest.approx(2 / 3)
    assert test.target.unseen == 0
