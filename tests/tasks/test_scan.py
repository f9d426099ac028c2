import csv
from itertools import islice

import pytest

from permalign.errors import DataError
from permalign.tasks.grammar import END, GrammarError
from permalign.tasks.program import bracketed, from_preorder, read_bracketed
from permalign.tasks.scan import TEST_FILE, TRAIN_FILE, ScanSP
from permalign.tasks.scan_language import commands, execute, program_grammar

SIZES = {
    **{"iid/train": 13_383, "iid/dev": 3_345, "iid/test": 4_182},
    **{"len/train": 1_710, "len/dev": 9_600, "len/test": 9_600},
}


@pytest.fixture(scope="module")
def published(data_dir):
    return ScanSP(data_dir)


@pytest.fixture
def empty(tmp_path):
    (tmp_path / "scan").mkdir()
    return tmp_path


def lines(task, folder):
    """Every command with its actions, in the format of the files."""
    examples = [e for part in ("train", "dev", "test") for e in task.examples(f"{folder}/{part}")]
    return {f"IN: {' '.join(e.source)} OUT: {' '.join(task.execute(e.target, e))}" for e in examples}


def test_commands_and_actions_are_those_of_the_files(published, data_dir):
    texts = [(data_dir / "scan" / name).read_text().splitlines() for name in (TRAIN_FILE, TEST_FILE)]
    expected = {line.rstrip() for text in texts for line in text}
    assert len(expected) == 20_910
    assert lines(published, "iid") == lines(published, "len") == expected
    assert [" ".join(e.source) for e in published.examples("iid/test")] == [
        line.removeprefix("IN: ").split(" OUT: ")[0] for line in texts[1]
    ]


def test_programs_and_splits_are_the_expected_ones(published, data_dir):
    with (data_dir / "scan/expected/scan_sp.tsv").open() as stream:
        rows = {row["command"]: row for row in csv.DictReader(stream, delimiter="\t")}
    assert len(rows) == 20_910
    for split in published.splits:
        condition, part = split.split("/")
        for example in published.examples(split):
            row = rows[" ".join(example.source)]
            assert " ".join(example.target) == row["program"]
            assert published.answer(example, example.target) == row["program_full"]
            assert row[condition] == ("train" if split == "iid/dev" else part)


def test_brackets_are_lossless_for_all_programs():
    grammar = program_grammar()
    seen = set()
    for program in commands().values():
        assert read_bracketed(bracketed(program)) == program
        tokens = grammar.linearize(program)
        assert grammar.read(tokens) == program
        seen.add(tuple(tokens))
    assert len(seen) == 20_910


def test_the_grammar_has_a_program_for_each_command_and_no_other():
    paths = [(program_grammar().initial, ())]
    programs = set()
    while paths:
        state, tokens = paths.pop()
        if state.complete:
            programs.add(tokens)
        paths += [(state.advance(token), (*tokens, token)) for token in state.allowed - {END}]
    assert programs == {tuple(program_grammar().linearize(program)) for program in commands().values()}


@pytest.mark.parametrize(
    ("program", "actions"),
    [
        ("walk", "I_WALK"),
        ("turn left", "I_TURN_LEFT"),
        ("look right", "I_TURN_RIGHT I_LOOK"),
        ("run opposite left", "I_TURN_LEFT I_TURN_LEFT I_RUN"),
        ("turn opposite left", "I_TURN_LEFT I_TURN_LEFT"),
        ("jump around right", " ".join(["I_TURN_RIGHT I_JUMP"] * 4)),
        ("and thrice walk jump", "I_WALK I_WALK I_WALK I_JUMP"),
        ("after thrice walk jump", "I_JUMP I_WALK I_WALK I_WALK"),
    ],
)
def test_programs_are_executed(program, actions):
    assert execute(program_grammar().read(program.split())) == tuple(actions.split())


def test_a_program_deeper_than_the_grammar_has_is_refused():
    deep = from_preorder([("twice", 1)] * 10_000 + [("walk", 0)])
    with pytest.raises(ValueError, match=r"at most 4 functions deep; this one has 10,001\."):
        execute(deep)


@pytest.mark.parametrize("tokens", [["turn"], ["walk", "twice"], ["and", "walk"], []])
def test_an_output_that_is_not_a_program_has_no_answer(tokens):
    example = next(iter(ScanSP("nowhere").examples("len/train")))
    with pytest.raises(GrammarError):
        ScanSP().answer(example, tokens)
    with pytest.raises(GrammarError):
        ScanSP().execute(tokens, example)


def test_without_files_the_split_is_random_and_a_note_says_so(empty):
    task = ScanSP(empty)
    assert {split: len(task.examples(split)) for split in task.splits} == SIZES
    assert "not the same commands" in task.notes[0]
    assert str(empty / "scan") in task.notes[0]
    sources = [{e.source for e in task.examples(split)} for split in task.splits[:3]]
    assert len(set.union(*sources)) == 20_910
    assert ScanSP(empty, seed=1).examples("iid/test") != task.examples("iid/test")
    assert ScanSP(empty, seed=1).examples("len/test") == task.examples("len/test")


def test_files_change_only_iid(empty, published):
    drawn = ScanSP(empty)
    assert {e.id for e in published.examples("iid/test")} != {e.id for e in drawn.examples("iid/test")}
    assert published.examples("len/test") == drawn.examples("len/test")


def test_with_files_the_sizes_are_the_same_and_there_is_no_note(published):
    assert {split: len(published.examples(split)) for split in published.splits} == SIZES
    assert published.notes == ()


def test_an_unknown_split_is_an_error():
    with pytest.raises(ValueError, match="scan-sp has no split 'simple/train'; choose one of iid/train"):
        ScanSP().examples("simple/train")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("IN: walk OUT: I_WALK\nwalk\tI_WALK\n", "line 2: expected `IN: <command> OUT: <actions>`"),
        ("IN: walk\n", "line 1: expected `IN:"),
        ("IN: fly OUT: I_FLY\n", "line 1: 'fly' is not a command of SCAN"),
        ("IN: walk OUT: I_RUN\n", "line 1: the actions of 'walk' should be 'I_WALK'"),
        ("IN: walk OUT: I_WALK\nIN: walk OUT: I_WALK\n", "line 2: 'walk' occurs twice"),
        ("IN: walk\rOUT: I_WALK\n", "line 1: .*carriage return"),
        ("IN: walk OUT: I_WALK\n\nIN: run OUT: I_RUN\n", "line 2: the line is empty"),
        ("IN: " + "walk " * 100_000 + "OUT: I_WALK\n", "line 1: 'walk .{70,80}\\.\\.\\.' is not a command"),
    ],
)
def test_malformed_files_are_errors_with_their_line(empty, content, words):
    (empty / "scan" / TRAIN_FILE).write_bytes(content.encode())
    (empty / "scan" / TEST_FILE).write_bytes(b"IN: look OUT: I_LOOK\n")
    with pytest.raises(DataError, match=f"{TRAIN_FILE}, {words}"):
        ScanSP(empty).examples("iid/train")


def test_incomplete_files_are_errors(empty):
    (empty / "scan" / TRAIN_FILE).write_bytes(b"IN: walk OUT: I_WALK\n")
    with pytest.raises(DataError, match=f"{TEST_FILE}: there is no such file"):
        ScanSP(empty).examples("iid/train")
    (empty / "scan" / TEST_FILE).write_bytes(b"IN: look OUT: I_LOOK\n")
    with pytest.raises(DataError, match=f"{TEST_FILE}: .* hold 2 of the 20,910 commands"):
        ScanSP(empty).examples("iid/train")


def test_ids_are_unique():
    task = ScanSP("nowhere")
    assert len({e.id for e in islice(task.examples("iid/train"), 100)}) == 100
