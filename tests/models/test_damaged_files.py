"""Files of models that are damaged, hostile or changed by hand."""

import json
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tests.models.small import make

from permalign import load_model
from permalign.errors import ConfigError, DataError, PermalignError

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
