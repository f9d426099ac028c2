"""Files of models that are damaged, hostile or changed by hand."""

import json
import os
import pickle
import shutil
import signal
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.models.small import make

from permalign import load_model
from permalign.errors import ConfigError, DataError, PermalignError
from permalign.files import require_unchanged

FILES = ["config.json", "model.safetensors", "source.json", "target.json"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    make("soft", "ssnt").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def change_config(folder, change):
    """Change the config by hand, and accept the change."""
    path = folder / "config.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    (folder / "checksums.json").unlink()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True), st.sampled_from(["cut", "flip", "insert"]))
def test_any_damage_is_found_and_the_file_is_named(saved, tmp_path, name, place, damage):
    path = shutil.copytree(saved, tmp_path / "model", dirs_exist_ok=True) / name
    content = path.read_bytes()
    at = int(place * len(content))
    changed = {
        "cut": b"",
        "flip": bytes([content[at] ^ 1]) + content[at + 1 :],
        "insert": b" " + content[at:],
    }
    path.write_bytes(content[:at] + changed[damage])
    with pytest.raises(
        DataError, match=rf"{name}: is damaged.*if you changed it yourself, delete .*checksums\.json"
    ):
        load_model(tmp_path / "model")


def test_a_config_may_be_changed_by_hand(folder):
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"decoding": "viterbi"', '"decoding": "greedy"'))
    with pytest.raises(DataError, match=r"if you changed it yourself, delete .*checksums\.json to accept"):
        load_model(folder)
    (folder / "checksums.json").unlink()
    assert load_model(folder).options.reorderer.decoding == "greedy"


def test_checksums_themselves_may_be_damaged(folder):
    (folder / "checksums.json").write_text("{")
    with pytest.raises(DataError, match=r"checksums\.json: does not hold checksums"):
        load_model(folder)


def test_saving_again_renews_the_checksums(folder):
    make("hard", "swan").save_pretrained(folder)
    load_model(folder)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("embedding_dim", 2_000_000_000),
        ("embedding_dim", 2**31 - 1),
        ("hidden_size", 2_000_000_000),
        ("context", 2_000_000_000),
        ("num_layers", 2_000_000_000),
        ("num_layers", 1000),
        ("embedding_dim", 10**30),
        ("embedding_dim", "1" + "0" * 5000),
        ("max_segment_length", 2**40),
        ("dropout", float("inf")),
    ],
)
def test_sizes_are_compared_before_memory_is_taken(folder, option, value):
    path = folder / "config.json"
    record = json.loads(path.read_text())
    record["options"]["head"][option] = "VALUE"
    written = value if isinstance(value, str) else json.dumps(value)
    path.write_text(json.dumps(record).replace('"VALUE"', written))
    (folder / "checksums.json").unlink()
    with pytest.raises(PermalignError) as caught:
        load_model(folder)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("part", "option"), [("head", "max_segment_length"), ("reorderer", "num_iterations")]
)
def test_sizes_that_no_weight_has_are_bounded(folder, part, option):
    change_config(folder, lambda record: record["options"][part].update({option: 2 * 10**9}))
    with pytest.raises(
        ConfigError, match=rf"{option} is 2000000000: input should be less than or equal to 1000"
    ):
        load_model(folder)


def test_a_million_members_are_refused(folder):
    change_config(folder, lambda record: record.update(kind="Ensemble", members=[record["options"]] * 1001))
    with pytest.raises(DataError, match="describes 1001 members, but an ensemble has at most 1000"):
        load_model(folder)
    first = {"format": "permalign transducer", "version": 1, "options": {"together": 1_000_000}}
    (folder / "config.json").write_text(json.dumps(first))
    with pytest.raises(
        ConfigError, match="ensemble_size is 1000000: input should be less than or equal to 1000"
    ):
        load_model(folder)


@pytest.mark.parametrize(("count", "message"), [(3, "does not fit"), (900, "describes 900 members, but")])
def test_members_that_the_weights_do_not_have(folder, count, message):
    change_config(folder, lambda record: record.update(kind="Ensemble", members=[record["options"]] * count))
    with pytest.raises(DataError, match=message):
        load_model(folder)


def test_deeply_nested_json(folder):
    (folder / "checksums.json").unlink()
    for name in ("source.json", "config.json"):
        (folder / name).write_text("[" * 100_000)
        with pytest.raises(DataError, match=f"{name}: is not JSON"):
            load_model(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name(folder, value):
    state = load_file(folder / "model.safetensors")
    name = sorted(state)[3]
    state[name].view(-1)[-1] = value
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "checksums.json").unlink()
    with pytest.raises(DataError, match=rf"parameter {name} holds NaN or infinite values"):
        load_model(folder)


def test_comparing_shapes_draws_no_random_numbers(folder):
    torch.manual_seed(0)
    load_model(folder)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    make("soft", "ssnt", seed=0)
    assert torch.equal(after, torch.get_rng_state())


# --- Folders that somebody made to do harm --------------------------------------------------------------------------


@pytest.fixture
def bounded():
    """Fail where a test takes a minute, or half a gigabyte more memory than it began with."""
    import resource  # which Windows does not have

    def give_up(*_):
        raise TimeoutError("this took a minute")

    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**29, before[1]))
    handler = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, handler)
    resource.setrlimit(resource.RLIMIT_AS, before)


class WritesAFile:
    """A pickle of this writes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def refused(folder):
    """The one line with which a model is refused."""
    with pytest.raises(PermalignError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


linux = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="limits of memory are those of Linux"
)


@linux
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", [*FILES, "checksums.json"])
def test_files_that_are_larger_than_all_memory(folder, name):
    (folder / "checksums.json").unlink()
    with (folder / name).open("wb") as file:
        file.truncate(2**36)  # only a size: no disk space is taken
    assert name in refused(folder)


@linux
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("with_checksums", [True, False])
@pytest.mark.parametrize("target", ["/etc/passwd", "/dev/zero", "/proc/self/mem", "a pipe"])
@pytest.mark.parametrize("name", [*FILES, "checksums.json"])
def test_links_to_other_files(folder, name, target, with_checksums):
    if not with_checksums:
        (folder / "checksums.json").unlink()
    if target == "a pipe":
        target = folder / "pipe"
        os.mkfifo(target)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    message = refused(folder)
    assert name in message
    assert "root:" not in message


@linux
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", [*FILES, "checksums.json"])
@pytest.mark.parametrize("write", [pickle.dump, torch.save])
def test_pickles_are_not_loaded(folder, name, write, tmp_path):
    (folder / "checksums.json").unlink()
    with (folder / name).open("wb") as stream:
        write(WritesAFile(tmp_path / "harm"), stream)
    assert name in refused(folder)
    assert not (tmp_path / "harm").exists()


def test_pickles_beside_the_weights_are_not_loaded(folder, tmp_path):
    for name in ("pytorch_model.bin", "model.pt", "model.pkl"):
        (folder / name).write_bytes(pickle.dumps(WritesAFile(tmp_path / "harm")))
    load_model(folder)
    assert not (tmp_path / "harm").exists()


@linux
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/passwd", "/dev/zero", "pretrained-head/../../../x"]
)
def test_checksums_of_files_elsewhere(folder, name):
    (folder.parent / "x").symlink_to("/dev/zero")
    path = folder / "checksums.json"
    record = json.loads(path.read_text())
    record["sha256"][name] = "0" * 64
    path.write_text(json.dumps(record))
    assert "of another folder" in refused(folder)
    with pytest.raises(DataError, match="of another folder"):
        require_unchanged(folder)


@linux
@pytest.mark.usefixtures("bounded")
def test_checksums_of_a_device(folder):
    (folder / "more").symlink_to("/dev/zero")
    path = folder / "checksums.json"
    path.write_text(path.read_text().replace('"config.json"', '"more"'))
    with pytest.raises(DataError, match="more: is missing"):
        require_unchanged(folder)


@linux
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "../../../../dev/zero"])
def test_paths_in_the_config(folder, name):
    path = folder / "config.json"
    original = path.read_text()
    changes = [
        lambda record: record.update(kind=name),
        lambda record: record.update(plugins=[{"part": "head", "name": name, "module": name}]),
        lambda record: record["options"]["head"].update(kind=name),
        lambda record: record["options"]["head"].update(pretrained=name),
        lambda record: record["options"]["reorderer"].update(pretrained=name),
    ]
    for change in changes:
        path.write_text(original)
        (folder / "checksums.json").touch()
        change_config(folder, change)
        refused(folder)


def header(description, length=None):
    text = json.dumps(description).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


HOSTILE_WEIGHTS = {
    "a header of 9 exabytes": header({}, 2**63 - 1),
    "a header of more than can be counted": header({}, 2**64 - 1),
    "a header of 90 MB of nothing": struct.pack("<Q", 90_000_000) + b"HOLE",
    "a tensor of 4 exabytes": header({"a": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}),
    "a size that overflows": header({"a": {"dtype": "F32", "shape": [2**33] * 3, "data_offsets": [0, 4]}})
    + b"0000",
    "offsets in reverse": header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}) + b"0000",
    "offsets beyond the end": header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
    "a name that leaves the folder": header({"../x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    + b"0000",
    "a hundred thousand empty tensors": header(
        {str(i): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}
    ),
    "deep nesting": struct.pack("<Q", 100_000) + b"[" * 100_000,
    "nothing": b"",
    "seven bytes": b"\0" * 7,
}


@linux
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("content", HOSTILE_WEIGHTS.values(), ids=HOSTILE_WEIGHTS)
def test_hostile_headers_of_weights(folder, content):
    (folder / "checksums.json").unlink()
    path = folder / "model.safetensors"
    path.write_bytes(content.removesuffix(b"HOLE"))
    if content.endswith(b"HOLE"):
        os.truncate(path, 90_000_008)  # without taking space on the disk
    assert "model.safetensors" in refused(folder)
