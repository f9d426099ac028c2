import json

import pytest

from permalign.errors import DataError
from permalign.tasks.base import Example
from permalign.tasks.registry import get_task
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
    write("folder/valid.csv", "source,target\na,b\n")
    write("folder/len/test.tsv", "source\ttarget\na\tb\n")
    task = UserData(tmp_path / "folder")
    assert task.splits == ("iid/train", "iid/dev", "len/test")
    assert [len(task.examples(split)) for split in task.splits] == [2, 1, 1]
    assert task.notes == ()


def test_a_tenth_is_held_out_if_there_is_no_dev_file(write, tmp_path):
    write("folder/train.tsv", "source\ttarget\n" + "".join(f"a{i}\tb\n" for i in range(40)))
    write("folder/test.tsv", "source\ttarget\nc\td\n")
    write("folder/all.tsv", "source\ttarget\nc\td\n")
    task = UserData(tmp_path / "folder")
    assert [len(task.examples(split)) for split in ("iid/train", "iid/dev", "iid/test")] == [36, 4, 1]
    assert not {e.id for e in task.examples("iid/train")} & {e.id for e in task.examples("iid/dev")}
    assert "all.tsv" in task.notes[0]
    assert "36 for training, 4 for dev" in task.notes[1]


def test_a_file_without_a_suffix_is_no_side_of_aligned_files(write, tmp_path):
    for name in ("train", "train.en", "train.de"):
        write(name, "a\n")
    with pytest.raises(DataError, match=r"has files that end in de and en\. Say which .* --source-column de"):
        UserData(tmp_path).examples("iid/train")


def test_a_folder_may_have_aligned_files(write, tmp_path):
    for part, count in (("train", 3), ("dev", 2)):
        write(f"folder/{part}.en", "one two\n" * count)
        write(f"folder/{part}.de", "eins zwei\n" * count)
    with pytest.raises(DataError, match="--source-column de --target-column en"):
        UserData(tmp_path / "folder").examples("iid/train")
    task = UserData(tmp_path / "folder", source_column="en", target_column="de")
    assert [len(task.examples(split)) for split in task.splits] == [3, 2]
    assert task.examples("iid/dev")[0] == Example(("one", "two"), ("eins", "zwei"), "1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'input,output\n"a, b",c\n'),
        ("a.tsv", "input\toutput\na, b\tc\n"),
        ("a.tsv", "a, b\tc\n"),
        ("a.tsv", "en\tde\na, b\tc\n"),
        ("a.csv", 'quelle,ziel\n"a, b",c\n'),
        ("a.jsonl", '{"question": "a, b", "sql": "c", "database": "d"}\n'),
        ("a.jsonl", '{"translation": {"en": "a, b", "de": "c"}}\n'),
    ],
)
def test_columns_are_recognised_and_noted(write, name, text):
    task = UserData(write(name, text))
    example = task.data.examples[0]
    assert (example.source, example.target) == (("a,", "b"), ("c",))
    assert any("the source is" in note for note in task.notes)


def test_several_columns_are_joined_and_numbers_stand_for_a_missing_header(write):
    named = UserData(
        write("a.csv", "lemma,tags,form\nwalk,V;PST,walked\n"),
        source_column="lemma,tags",
        target_column="form",
    )
    numbered = UserData(write("a.tsv", "walk\twalked\tV;PST\n"), source_column="1,3", target_column="2")
    in_yaml = get_task("own", path=write("b.tsv", "walked\twalk V;PST\n"), source_column=2, target_column=1)
    for task in (named, numbered, in_yaml):
        example = task.data.examples[0]
        assert (example.source, example.target) == (("walk", "V;PST"), ("walked",))


def test_a_csv_file_without_a_header_is_read_by_numbers_and_noticed_without_them(write):
    path = write("a.csv", '"5 mai 2001",2001-05-5\n"6 mai 2001",2001-05-6\n')
    task = UserData(path, source_column="1", target_column="2")
    assert [example.source for example in task.data.examples] == [("5", "mai", "2001"), ("6", "mai", "2001")]
    (note,) = [note for note in UserData(path).notes if "line 1" in note]
    assert note.endswith("If it is an example, use --source-column 1 --target-column 2.")
    named = UserData(write("b.csv", "1,2\na b,c\n"), source_column="1", target_column="2")
    assert [example.source for example in named.data.examples] == [("a", "b")]


def test_examples_with_an_empty_side_and_empty_lines_are_left_out(write):
    task = UserData(write("a.tsv", "source\ttarget\na\tb\n\n\tb\nc\t \n"))
    assert len(task.data.examples) == 1
    assert "left out 2 examples with an empty source or target." in task.notes


@pytest.mark.parametrize("name", ["hf:{}", "{}"], ids=["by name", "from disk"])
def test_a_dataset_of_hugging_face(tmp_path, name):
    datasets = pytest.importorskip("datasets")
    rows = {"translation": [{"en": f"one {i}", "de": f"eins {i}"} for i in range(30)]}
    split = datasets.DatasetDict(
        train=datasets.Dataset.from_dict(rows), extra=datasets.Dataset.from_dict(rows)
    )
    if name == "{}":
        split.save_to_disk(tmp_path / "set")
    else:
        split["train"].to_json(tmp_path / "set" / "train.jsonl")
    task = UserData(
        name.format(tmp_path / "set"), source_column="translation.en", target_column="translation.de"
    )
    assert [len(task.examples(split)) for split in task.splits] == [27, 3]
    assert task.examples("iid/train")[0].source[0] == "one"
    assert any("ignored the splits extra" in note for note in task.notes) == (name == "{}")


@pytest.mark.parametrize("path", ["hf:", "hf: ", "hf::configuration"])
def test_a_dataset_without_a_name_is_an_error_that_shows_how_to_write_one(path):
    with pytest.raises(DataError, match=r"a dataset has no name\. Write hf:NAME or hf:NAME:CONFIGURATION"):
        UserData(path).examples("iid/train")


def test_a_dataset_is_not_waited_for_where_the_hub_has_no_address(monkeypatch, capfd):
    datasets = pytest.importorskip("datasets")

    def unknown_host(*arguments):
        raise OSError("Name or service not known")

    monkeypatch.setattr("permalign.hub.getaddrinfo", unknown_host)
    monkeypatch.setattr("permalign.hub.getproxies", dict)
    before = datasets.config.HF_HUB_OFFLINE
    with pytest.raises(DataError, match=r"hf:owner/nothing: .* \(OfflineModeIsEnabled\)"):
        UserData("hf:owner/nothing").examples("iid/train")
    assert capfd.readouterr().err == ""
    assert before == datasets.config.HF_HUB_OFFLINE


def test_a_dataset_that_cannot_be_loaded_is_one_line(tmp_path):
    pytest.importorskip("datasets")
    with pytest.raises(DataError, match="the library datasets cannot load it") as caught:
        UserData(f"hf:{tmp_path / 'nothing'}").examples("iid/train")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("own.jsonl", '{"source": "a", "target": "b"}\n{"source": \n', 2, "the line is not JSON"),
        ("own.jsonl", "[" * 100_000 + "\n", 1, "the line is not JSON"),
        ("own.jsonl", '{"source": "\\ud83d", "target": "b"}\n', 1, "half of a surrogate pair"),
        ("own.jsonl", "[1]\n", 1, "expected a JSON object with source and target, found a list"),
        (
            "own.jsonl",
            '{"source": "a"}\n',
            1,
            "there is only one column (source)",
        ),
        (
            "own.jsonl",
            '{"source": "a", "target": "b"}\n{"source": "a"}\n',
            2,
            "there is no column 'target' (found: source)",
        ),
        (
            "own.jsonl",
            '{"source": "a", "target": true}\n',
            1,
            "'target' should be a string or a list of strings",
        ),
        ("own.jsonl", '{"source": "a", "target": [""]}\n', 1, "'target' should be a string or a list"),
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
        (
            "own.tsv",
            "eins\tzwei\tdrei\n",
            1,
            "it is not clear which column holds the sources (found: 1, 2, 3). Give --source-column NUMBER",
        ),
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
        ("own.tsv", "source\ttarget\n", "the file has no examples, only a header."),
        ("own.csv", "source,target\n", "the file has no examples, only a header."),
        ("own.txt", "source,target\n", "expected a file that ends in .tsv"),
        ("own.json", "[]", "one object per line, for example with `jq -c '.[]'`"),
        ("own.xlsx", "", "Save the sheet as CSV."),
        ("own.tsv", "source\ttarget\na\t\n", "there are no examples"),
    ],
)
def test_a_file_without_examples_is_an_error(write, name, text, words):
    with pytest.raises(DataError) as caught:
        UserData(write(name, text)).examples("iid/train")
    assert words in str(caught.value)


def test_a_folder_without_files_or_with_two_for_a_split_is_an_error(write, tmp_path):
    with pytest.raises(DataError, match="the folder has no train, dev or test file that ends in"):
        UserData(tmp_path).examples("iid/train")
    for name in ("train.jsonl", "train.tsv"):
        write(name, json.dumps({"source": "a", "target": "b"}))
    with pytest.raises(DataError, match=r"train\.tsv: holds iid/train, but so does .*train\.jsonl"):
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


def test_tags_belong_to_a_lemma_and_unused_columns_are_named(write):
    task = UserData(write("verbs.tsv", "lemma\ttags\tform\nwalk\tV;PST\twalked\n"))
    assert task.data.examples[0].source == ("walk", "V;PST")
    assert any("the source is 'lemma' and 'tags', the target 'form'." in note for note in task.notes)
    task = UserData(write("dates.csv", "Question,Hint,SQL\na b,h,c\n"))
    assert task.data.examples[0].source == ("a", "b")
    assert any("Not used: 'Hint'" in note for note in task.notes)


def test_a_missing_column_is_named_with_those_that_there_are(write):
    path = write("dates.csv", "Nr.,Datum (Text),ISO 8601\n1,1er mai,05-01\n")
    with pytest.raises(
        DataError, match=r"no column 'Datum' \(found: Nr\., .*Did you mean 'Datum \(Text\)'\?"
    ):
        UserData(path, source_column="Datum", target_column="ISO 8601").examples("iid/train")
    with pytest.raises(DataError, match="Give --source-column NAME and --target-column NAME, or"):
        UserData(path).examples("iid/train")


def test_a_file_with_a_single_column_says_how_to_separate_two(write):
    with pytest.raises(DataError, match=r"there is only one column .* Separate them by a tab"):
        UserData(write("one.tsv", "one two\n")).examples("iid/train")


def test_runs_in_a_folder_of_data_are_not_data(write, tmp_path):
    write("train.tsv", "source\ttarget\na\tb\nc\td\n")
    (tmp_path / "runs/mine/predictions").mkdir(parents=True)
    (tmp_path / "runs/mine/config.yaml").write_text("seed: 0\n", encoding="utf-8")
    (tmp_path / "runs/mine/predictions/dev.jsonl").write_text("{}\n", encoding="utf-8")
    assert UserData(tmp_path).splits == ("iid/train", "iid/dev")


@pytest.mark.parametrize(
    ("header", "row", "has_header"),
    [
        ("measurement\tnormalised", "two feet\t2 ft", True),
        ("Datum\tiso-date", "12. Mai 2021\t2021-05-12", True),
        ("walk\twalked", "talk\ttalked", False),
        ("two feet\t2 ft", "three feet\t3 ft", False),
    ],
)
def test_an_unusual_header_is_recognised_where_no_other_line_has_plain_words(
    tmp_path, header, row, has_header
):
    path = tmp_path / "pairs.tsv"
    path.write_text(f"{header}\n" + f"{row}\n" * 20)
    task = UserData(path)
    assert sum(len(task.examples(split)) for split in task.splits) == 20 + (not has_header)
    note = "there is no header with source and target, so line 1 is an example too."
    assert (note in task.notes[0]) is not has_header
    hint = " If it is a header, use --source-column walk --target-column walked."
    assert (hint in task.notes[0]) == header.startswith("walk")
    path.write_text(f"{header}\n{row}\n")
    assert note in UserData(path).notes[0]  # one other line is too few to tell


def test_a_missing_file_is_compared_with_those_that_there_are(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b\tB A\n" * 20)
    with pytest.raises(DataError, match=r"pars\.tsv: there is no such file\. Did you mean .*/pairs\.tsv\?"):
        UserData(tmp_path / "pars.tsv").examples("iid/train")
    with pytest.raises(DataError, match=r"there is no such file\.$"):
        UserData(tmp_path / "other.tsv").examples("iid/train")
