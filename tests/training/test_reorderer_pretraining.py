import os
import signal

import pytest
import torch
from tests.training.small_run import SILENT, write_data

from permalign import load_model
from permalign.errors import ConfigError
from permalign.options.run import RunOptions
from permalign.training import launch, train
from permalign.training.interrupt_handler import SavedInterrupt
from permalign.training.launch import REORDERER_PRETRAINING, resume
from permalign.training.progress_display import Display
from permalign.training.state import last_saved_step

SMALL = {"embedding_dim": 8, "encoder": {"hidden_size": 8}}


def options(path, model=None, **training):
    return {
        "task": {"name": "own", "path": str(path)},
        "model": {
            "reorderer": {"kind": "separable", "objective": "hard", "scorer_hidden_size": 8, **SMALL},
            "head": {"kind": "ssnt", "hidden_size": 8, **SMALL},
            **(model or {}),
        },
        "training": {"max_steps": 2, "max_dev_examples": 2, "pretrain_reorderer": 3, **training},
    }


def test_a_run_starts_with_the_reorderer_that_a_first_model_has_trained(tmp_path, monkeypatch):
    starts = []

    def run(session):
        starts.append({name: value.clone() for name, value in session.core.reorderer.state_dict().items()})
        loop_run(session)

    loop_run = launch.loop.run
    monkeypatch.setattr(launch.loop, "run", run)
    train(options(write_data(tmp_path)), tmp_path / "run", display=SILENT)

    first_model = load_model(tmp_path / "run" / "attempts" / REORDERER_PRETRAINING / "model")
    assert first_model.options.reorderer.objective == "exact"
    assert first_model.options.head.kind == "segments"
    assert first_model.options.head.encoder.kind == "none"
    trained = first_model.reorderer.state_dict()
    assert not all(torch.equal(starts[0][name], trained[name]) for name in trained)
    assert all(torch.equal(starts[1][name], trained[name]) for name in trained)


class Interrupted(Display):
    """Presses Ctrl-C in the second step of the first model."""

    def advance(self, step, loss):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_that_is_interrupted_while_its_reorderer_is_pretrained_is_resumed_exactly(tmp_path):
    data = write_data(tmp_path)
    train(options(data), tmp_path / "whole", display=SILENT)
    with pytest.raises(SavedInterrupt, match="saved at step 2"):
        train(options(data), tmp_path / "run", display=Interrupted())
    assert last_saved_step(tmp_path / "run") == 2
    resume(tmp_path / "run", display=SILENT)
    weights = [(tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("whole", "run")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("model", "training", "words"),
    [
        ({"reorderer": {"kind": "sinkhorn"}}, {}, "but model.reorderer.kind is sinkhorn"),
        ({"ensemble_size": 2}, {}, "is for single models"),
        ({"inverse": {}}, {}, "is for single models"),
        (
            {
                "reorderer": {"kind": "separable", "shared_embeddings": True},
                "head": {"pretrained": "some/model"},
            },
            {},
            "needs a head that reads single words",
        ),
        ({}, {"max_steps": 9, "restarts": 2, "restart_steps": 3}, "cannot be combined"),
        ({}, {"max_steps": 9, "warmup_steps": 3}, "training.warmup_steps is 3"),
    ],
)
def test_options_that_pretraining_does_not_fit_are_an_error(model, training, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        RunOptions.parse(options(tmp_path / "data.jsonl", model, **training))
