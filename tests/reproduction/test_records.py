import json
import multiprocessing
import os
import signal

import pytest

from permalign.errors import DataError
from permalign.reproduction.records import RunRecord, RunStore


def record(name, **changes):
    values = {"command": "", "experiment": "", "settings": [], "seed": 0, "options": {}, **changes}
    return RunRecord(name, **values)


def write_many(path, writer, count):
    for number in range(count):
        RunStore(path).write(record(f"run-{number}-of-{writer}"))
        RunStore(path).write(record("shared", evaluations={f"split {writer}-{number}": {}}))


def write_and_die(path):
    """Kill this process immediately before the new file replaces the old one."""

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    os.replace = kill
    RunStore(path).write(record("second"))


def run_in_processes(target, *arguments):
    processes = [
        multiprocessing.get_context("spawn").Process(target=target, args=words) for words in arguments
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def test_written_records_are_read_again(tmp_path):
    store = RunStore(tmp_path / "results" / "runs.jsonl")
    assert store.read() == {}
    assert store.find("a-seed-0") is None
    written = record("a-seed-0", options={"text": "größer"}, dev={"scores": [[5, 40.0]]})
    store.write(written)
    assert store.find("a-seed-0") == written
    assert store.read() == {"a-seed-0": written}
    assert written.config == "a"


def test_lines_are_sorted_by_run_and_every_run_has_one_line(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    for name in ("b", "a", "c", "a"):
        store.write(record(name))
    lines = store.path.read_text().splitlines()
    assert [json.loads(line)["run"] for line in lines] == ["a", "b", "c"]
    assert all(next(iter(json.loads(line))) == "run" for line in lines)


def test_evaluations_that_another_process_has_recorded_are_kept(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    store.write(record("a", evaluations={"iid/test plain": {"examples": 1}, "len/test plain": {}}))
    store.write(record("a", evaluations={"iid/test plain": {"examples": 2}}))
    assert store.find("a").evaluations == {"iid/test plain": {"examples": 2}, "len/test plain": {}}


def test_evaluations_of_a_model_with_other_dev_scores_are_not_kept(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    store.write(record("a", dev={"scores": [[1, 50.0]]}, evaluations={"len/test plain": {}}))
    store.write(record("a", dev={"scores": [[1, 51.0]]}, evaluations={"iid/test plain": {}}))
    assert set(store.find("a").evaluations) == {"iid/test plain"}


def test_processes_that_write_at_the_same_time_lose_nothing(tmp_path):
    path = tmp_path / "runs.jsonl"
    assert run_in_processes(write_many, (path, 0, 20), (path, 1, 20)) == [0, 0]
    records = RunStore(path).read()
    assert len(records) == len(path.read_text().splitlines()) == 41
    assert len(records["shared"].evaluations) == 40


def test_a_killed_process_loses_nothing_and_leaves_no_lock(tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    store.write(record("first"))
    assert run_in_processes(write_and_die, (store.path,)) == [-signal.SIGKILL]
    assert set(store.read()) == {"first"}
    store.write(record("third"))
    assert set(store.read()) == {"first", "third"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 2 is not a record of a run"),
        ('{"run":"a","command":""}', "line 2 is a second record of a"),
        ('{"run":"b","command":""}', "the record of b cannot be read"),
    ],
)
def test_lines_that_are_not_records_are_errors(tmp_path, line, message):
    store = RunStore(tmp_path / "runs.jsonl")
    store.write(record("a"))
    store.path.write_text(f"{store.path.read_text()}{line}\n")
    with pytest.raises(DataError, match=message):
        store.read()
