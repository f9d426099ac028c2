"""Every process and step has its own noise, and what killed sessions leave is removed, but nothing of others."""

import hashlib
import random
from types import SimpleNamespace

import numpy
import pytest
import torch
from tests.training.small_run import SILENT, options, remains, write_data

from permalign.training.launch import resume, train
from permalign.training.session import Session
from permalign.training.state import seed_step


def draws():
    return torch.rand(1).item(), random.random(), numpy.random.rand()


def noise(seed, step, process):
    """What is drawn after a session in this process has begun a step."""
    session = SimpleNamespace(
        options=SimpleNamespace(seed=seed, objective_at=lambda step: "exact"),
        accelerator=SimpleNamespace(process_index=process),
        core=SimpleNamespace(use_objective=lambda objective: None),
        optimizer=SimpleNamespace(param_groups=[]),
    )
    Session.begin_step(session, step)
    return draws()


def test_noise_depends_on_seed_step_and_process_alone():
    expected = noise(0, 1, 0)
    assert noise(0, 1, 0) == expected
    for other in (noise(1, 1, 0), noise(0, 2, 0), noise(0, 1, 1)):
        assert all(one != two for one, two in zip(other, expected, strict=True))
    seed_step(0, 1, 1)
    assert draws() == noise(0, 1, 1)


def test_the_noise_of_a_step_is_that_of_earlier_versions():
    seed_step(0, 1, 0)
    number = int.from_bytes(hashlib.sha256(b"0/1/0").digest()[:8], "little") >> 1
    assert torch.initial_seed() == number == 8011489835612496299
    assert random.getstate() == random.Random(number).getstate()
    assert numpy.random.rand() == numpy.random.RandomState(223732139).rand()


@pytest.fixture
def run(tmp_path):
    train(options(write_data(tmp_path)), tmp_path / "run", display=SILENT)
    return tmp_path / "run"


def test_what_a_killed_session_left_is_removed(run):
    before = remains(run)
    leftovers = [
        run / "checkpoints" / ".step-0000016.partial",
        run / "state" / ".step-0000016.partial",
        run / "predictions" / ".dev.jsonl.1.partial",
        run / ".config.yaml.1.partial",
    ]
    for leftover in leftovers[:2]:
        leftover.mkdir()
        (leftover / "model.safetensors").write_bytes(b"half")
    for leftover in leftovers[2:]:
        leftover.write_text("half")
    others = run / "predictions" / "iid" / ".test.jsonl.1.partial"
    others.parent.mkdir(exist_ok=True)
    others.write_text("of another process, which is evaluating")
    resume(run, display=SILENT)
    assert not any(leftover.exists() for leftover in leftovers)
    assert others.exists()
    others.unlink()
    assert remains(run) == before
