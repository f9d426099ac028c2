"""Runs with damaged files: each is named, nothing good is lost, and the run ends as if nothing had happened."""

import json
import resource
import shutil

import pytest
from tests.training.small_run import SILENT, options, remains, write_data

from permalign import load_model
from permalign.errors import DataError, PermalignError
from permalign.training.launch import resume, train
from permalign.training.progress_display import Display
from permalign.training.state import read_progress, step_folders

DAMAGES = {
    "empty": lambda content: b"",
    "cut in the header": lambda content: content[:20],
    "cut in half": lambda content: content[: len(content) // 2],
    "cut by a byte": lambda content: content[:-1],
    "longer by a byte": lambda content: content + b"\0",
    "first byte flipped": lambda content: flipped(content, 0),
    "middle bit flipped": lambda content: flipped(content, len(content) // 2, mask=1),
    "last bit flipped": lambda content: flipped(content, len(content) - 1, mask=1),
}


def flipped(content, place, mask=0xFF):
    return content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]


def spoil(path, damage):
    path.write_bytes(DAMAGES[damage](path.read_bytes()))


class Listening(Display):
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run, whose latest state is that of step 12; the state before is of step 8."""
    folder = tmp_path_factory.mktemp("whole")
    train(options(write_data(folder)), folder / "run", display=SILENT)
    return folder / "run"


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def resumed(run):
    """What resuming a run says about its files, line by line; this run scores too low for no other warning."""
    display = Listening()
    resume(run, display=display)
    return [line for line in display.said if line.startswith("permalign: ")]


def best_checkpoint(run, state=0):
    step, _ = read_progress(step_folders(run / "state")[state]).kept[0]
    return run / "checkpoints" / f"step-{step:07d}"


def test_two_states_are_kept(whole):
    assert [state.name for state in step_folders(whole / "state")] == ["step-0000012", "step-0000008"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "optimiser.safetensors"])
def test_a_damaged_state_is_named_and_the_one_before_is_taken(whole, run, name, damage):
    path = run / "state" / "step-0000012" / name
    spoil(path, damage)
    named, back = resumed(run)
    assert str(path) in named
    assert back == "permalign: the run is resumed from the state before, of step 8"
    assert remains(run) == remains(whole)
    assert resumed(run) == []


@pytest.mark.parametrize("damage", ["empty", "cut in half", "longer by a byte", "middle bit flipped"])
def test_damaged_checksums_are_no_reason_to_trust_the_state(whole, run, damage):
    spoil(run / "state" / "step-0000012" / "checksums.json", damage)
    named, _ = resumed(run)
    assert str(run / "state" / "step-0000012") in named
    assert remains(run) == remains(whole)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_best_checkpoint_never_replaces_the_model(whole, run, damage):
    weights = best_checkpoint(run) / "model.safetensors"
    spoil(weights, damage)
    (line,) = resumed(run)
    assert line == f"permalign: {weights} was damaged and is restored from {run / 'model' / weights.name}"
    assert remains(run) == remains(whole)


def kept_checkpoints(run):
    steps = [step for step, _ in read_progress(step_folders(run / "state")[0]).kept]
    return [run / "checkpoints" / f"step-{step:07d}" for step in steps]


@pytest.mark.parametrize("damage", ["empty", "cut by a byte", "middle bit flipped", "missing"])
@pytest.mark.parametrize("rank", [0, 1])
def test_damaged_checksums_of_a_checkpoint_are_written_again(whole, run, rank, damage):
    record = kept_checkpoints(run)[rank] / "checksums.json"
    intact = record.read_bytes()
    record.unlink() if damage == "missing" else spoil(record, damage)
    (line,) = resumed(run)
    assert line == f"permalign: {record} was damaged and is written again by the state step-0000012"
    assert record.read_bytes() == intact
    assert remains(run) == remains(whole)


def test_damaged_checksums_are_no_reason_to_trust_the_weights(whole, run):
    _, second = kept_checkpoints(run)  # of which there is no copy
    spoil(second / "checksums.json", "empty")
    spoil(second / "model.safetensors", "middle bit flipped")
    with pytest.raises(
        DataError, match=r"model\.safetensors is damaged: its checksum is not the recorded one"
    ):
        resume(run, display=SILENT)
    assert weights_of(run / "model") == weights_of(whole / "model")


def test_removed_checkpoints_are_restored_as_far_as_there_are_copies(whole, run):
    best, second = kept_checkpoints(run)
    shutil.rmtree(best)
    resume(run, display=SILENT)
    assert remains(run) == remains(whole)
    shutil.rmtree(second)
    with pytest.raises(DataError, match=r"is missing\)\. Restore a copy, or start the run again"):
        resume(run, display=SILENT)
    assert weights_of(run / "model") == weights_of(whole / "model")


def weights_of(model):
    return (model / "model.safetensors").read_bytes()


def test_a_damaged_checkpoint_without_a_copy_takes_the_state_before(whole, run):
    latest, before = (
        {step for step, _ in read_progress(state).kept} for state in step_folders(run / "state")
    )
    (new,) = latest - before
    path = run / "checkpoints" / f"step-{new:07d}" / "target.json"
    spoil(path, "middle bit flipped")
    spoil(run / "model" / "target.json", "middle bit flipped")
    said = resumed(run)
    assert str(path) in said[0]
    assert said[-1].endswith("of step 8")
    assert remains(run) == remains(whole)
    assert (run / "model" / "target.json").read_bytes() == (whole / "model" / "target.json").read_bytes()


def test_a_checkpoint_that_only_the_state_before_needs_is_brought_back(tmp_path):
    train(options(write_data(tmp_path), keep_checkpoints=1), tmp_path / "run", display=SILENT)
    whole, run = tmp_path / "run", shutil.copytree(tmp_path / "run", tmp_path / "copy")
    latest, before = step_folders(run / "state")
    assert [folder.name for folder in step_folders(before / "checkpoints")] == ["step-0000008"]
    spoil(next(latest.glob("*.safetensors")), "empty")
    said = resumed(run)
    assert "the run is resumed from the state before, of step 8" in said[-1]
    assert remains(run) == remains(whole)


def test_what_cannot_be_mended_is_refused_and_the_model_stays(run):
    model = {path.name: path.read_bytes() for path in (run / "model").iterdir()}
    for state in step_folders(run / "state"):
        spoil(state / "model.safetensors", "middle bit flipped")
    with pytest.raises(
        DataError, match=r"step-0000012: this saved state is damaged .* Restore a copy, or start"
    ):
        resume(run, display=SILENT)
    assert {path.name: path.read_bytes() for path in (run / "model").iterdir()} == model


def test_a_checkpoint_that_goes_bad_while_training_goes_on_replaces_nothing(whole, run, monkeypatch):
    from permalign.training.run_directory import RunDirectory

    shutil.rmtree(run / "state" / "step-0000012")
    save_checkpoint = RunDirectory.save_checkpoint

    def damaged(self, step, model, report):
        save_checkpoint(self, step, model, report)
        spoil(self.checkpoint(step) / "model.safetensors", "cut in half")

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "save_checkpoint", damaged)
        with pytest.raises(DataError, match=r"model\.safetensors: is damaged"):
            resume(run, display=SILENT)
    load_model(run)
    resume(run, display=SILENT)
    assert remains(run) == remains(whole)


@pytest.mark.parametrize("folder", ["state", "checkpoints", "state/step-0000012", "model", "."])
def test_strange_files_are_in_nobodys_way(run, folder):
    (run / folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (run / folder / "step-notes.txt").write_text("mine")
    assert resumed(run) == []
    assert (run / folder / ".DS_Store").exists()


def test_a_run_without_checksums_is_still_resumed(whole, run):
    for record in run.rglob("checksums.json"):
        record.unlink()
    shutil.rmtree(run / "state" / "step-0000012")
    resume(run, display=SILENT)
    assert remains(run)[1:] == remains(whole)[1:]
    assert (run / "model" / "model.safetensors").read_bytes() == (
        whole / "model" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"\xff\xfe", 1),
        (b'{"step": 3}\n\xff{}\n', 2),
        (b"{}\n", 1),
        (b"[" * 100_000 + b"\n", 1),
        (b"\0\n", 1),
    ],
)
def test_damaged_metrics_are_named(run, content, line):
    (run / "metrics.jsonl").write_bytes(content + b"\n")
    with pytest.raises(DataError, match=rf"metrics.jsonl, line {line}: .* Remove the line"):
        resume(run, display=SILENT)


def test_a_changed_digit_in_the_metrics_is_found(whole, run):
    metrics = run / "metrics.jsonl"
    first, rest = metrics.read_text().split("\n", 1)
    digit = next(character for character in reversed(first) if character.isdigit())
    changed = first[: first.rindex(digit)] + str((int(digit) + 1) % 10) + first[first.rindex(digit) + 1 :]
    metrics.write_text(f"{changed}\n{rest}")
    with pytest.raises(DataError, match=r"metrics.jsonl: is damaged: its records up to step 12 .* delete it"):
        resume(run, display=SILENT)
    assert metrics.read_text() == f"{changed}\n{rest}"
    metrics.unlink()
    shutil.rmtree(run / "state" / "step-0000012")
    resume(run, display=SILENT)
    assert remains(run)[0] == remains(whole)[0]
    resume(run, display=SILENT)


def test_a_lost_record_is_found(run):
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(DataError, match=r"metrics.jsonl: is damaged"):
        resume(run, display=SILENT)


def test_a_state_is_json_and_safetensors_with_their_checksums(whole):
    for state in step_folders(whole / "state"):
        recorded = json.loads((state / "checksums.json").read_text())["sha256"]
        assert set(recorded) == {"state.json", "model.safetensors", "optimiser.safetensors"}


@pytest.mark.parametrize("room", [300, 2_000, 4_000, 6_000, 12_000])
def test_a_full_disk_is_told_in_one_line_and_the_run_goes_on(whole, tmp_path, room):
    """Files may not grow beyond some bytes, which is how a full disk looks to whoever writes them."""
    run, values = tmp_path / "run", options(write_data(whole.parent))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(PermalignError, match="cannot be written") as caught:
            train(values, run, display=SILENT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (line,) = str(caught.value).splitlines()
    started = (run / "config.yaml").exists()
    resuming = f"resume the run with `permalign train --resume {run}`"
    assert line.endswith(f". Free some space, and {resuming if started else 'start the run again'}.")
    if started:
        resume(run, display=SILENT)
    else:
        train(values, run, display=SILENT)
    assert remains(run) == remains(whole)
