"""Devices and mixed precision of training."""

import os

import pytest
import torch
import yaml
from accelerate.state import AcceleratorState
from tests.training.small_run import SILENT, options, write_data

from permalign.errors import ConfigError, UsageError
from permalign.options.run import RunOptions
from permalign.training import train
from permalign.training.devices import DEVICE_VARIABLE, PRECISION_VARIABLE, make_accelerator, precision_of
from permalign.training.launch import resume
from permalign.training.progress_display import Display
from permalign.training.resume_check import ResumeConditions
from permalign.training.run_directory import RunDirectory
from permalign.training.setup import prepare
from permalign.training.state import Progress, TrainingState


@pytest.fixture(autouse=True)
def forget_settings(monkeypatch):
    monkeypatch.delenv(PRECISION_VARIABLE, raising=False)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def weights(run):
    from safetensors.torch import load_file

    return load_file(RunDirectory(run).model / "model.safetensors")


def test_bfloat16_changes_what_is_learned_a_little(data, tmp_path):
    full, low = tmp_path / "full", tmp_path / "low"
    train(options(data), full, display=SILENT)
    train(options(data, precision="bf16"), low, display=SILENT)
    pairs = list(zip(weights(full).values(), weights(low).values(), strict=True))
    assert any(not torch.equal(one, other) for one, other in pairs)
    assert all(other.dtype == torch.float32 and other.isfinite().all() for _, other in pairs)


def test_the_setting_of_accelerate_is_used_and_recorded(data, tmp_path, monkeypatch):
    train(options(data, precision="bf16"), tmp_path / "option", display=SILENT)
    monkeypatch.setenv(PRECISION_VARIABLE, "bf16")
    train(options(data), tmp_path / "variable", display=SILENT)
    assert (
        yaml.safe_load((tmp_path / "variable" / "config.yaml").read_text())["training"]["precision"] == "bf16"
    )
    for name, tensor in weights(tmp_path / "option").items():
        assert torch.equal(tensor, weights(tmp_path / "variable")[name])


def test_an_option_comes_before_the_setting_of_accelerate(monkeypatch):
    monkeypatch.setenv(PRECISION_VARIABLE, "bf16")
    assert precision_of(make_accelerator("fp32")) is None
    assert precision_of(make_accelerator()) == "bf16"


def test_an_interrupted_run_in_bfloat16_is_resumed_exactly(data, tmp_path, monkeypatch):
    class Interrupted(Display):
        def advance(self, step, loss):
            if step == 6:
                raise RuntimeError("stop")

    train(options(data, precision="bf16"), tmp_path / "whole", display=SILENT)
    with pytest.raises(RuntimeError, match="stop"):
        train(options(data, precision="bf16"), tmp_path / "parts", display=Interrupted())
    monkeypatch.setenv(PRECISION_VARIABLE, "fp16")  # the precision is that of the run
    resume(tmp_path / "parts", display=SILENT)
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "parts")[name])


def test_fp16_is_refused_where_accelerate_would_ignore_it():
    with pytest.raises(ConfigError, match="fp16, but cpu trains in float32 and bfloat16 only"):
        make_accelerator("fp16", "cpu")


def test_an_unknown_setting_of_accelerate_is_named(monkeypatch):
    monkeypatch.setenv(PRECISION_VARIABLE, "fp7")
    with pytest.raises(ConfigError, match="accelerate cannot train in fp7") as caught:
        make_accelerator()
    assert ".." not in str(caught.value)
    monkeypatch.delenv(PRECISION_VARIABLE)
    assert precision_of(make_accelerator()) is None  # nothing is left of it


@pytest.mark.parametrize("device", ["cuda:77", "gpu", "cpu:x"])
def test_a_device_that_does_not_exist_is_named(device):
    with pytest.raises(UsageError, match=f"no device '{device}'; it has cpu"):
        make_accelerator(device=device)


def test_the_device_is_that_of_the_argument(monkeypatch):
    monkeypatch.setenv(DEVICE_VARIABLE, "meta")
    assert make_accelerator(device="cpu").device == torch.device("cpu")
    assert os.environ[DEVICE_VARIABLE] == "meta"


def test_the_scale_of_the_loss_is_saved_with_the_state(data, tmp_path):
    def make_state():
        setup = prepare(run_options)
        optimizer = torch.optim.Adam(setup.model.parameters())
        conditions = ResumeConditions(setup.data, 1, 12, run_options)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        return TrainingState(setup.model, optimizer, setup.batches.sampler, conditions, scaler)

    run_options = RunOptions.parse(options(data))
    saved = make_state()
    saved.scaler.scale(torch.ones(1))  # which creates the scale
    saved.scaler.update(new_scale=32.0)
    saved.save(tmp_path, Progress(step=3))
    loaded = make_state()
    assert loaded.load(tmp_path / "step-0000003").step == 3
    assert loaded.scaler.state_dict()["scale"] == 32.0
