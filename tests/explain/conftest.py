"""Tiny runs: models of words written backwards, trained for some seconds, with checkpoints."""

import json

import pytest
import torch
from tests.models.small import examples, make, train


def write_run(folder, model, steps):
    """Train a model, keeping it before, in the middle and at the end."""
    some = examples(60)
    model.save_pretrained(folder / "checkpoints" / "step-0000000")
    train(model, some, steps=steps // 2)
    model.save_pretrained(folder / "checkpoints" / f"step-{steps // 2:07d}")
    train(model, some, steps=steps // 2)
    model.eval().save_pretrained(folder / "model")
    (folder / "predictions").mkdir()
    lines = [json.dumps({"source": list("abcd"), "target": list("DCBA"), "output": list("DCBA")})]
    (folder / "predictions" / "dev.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def exact_run(tmp_path_factory):
    """Exact objective and tagging: knows how to turn words around."""
    return write_run(tmp_path_factory.mktemp("runs") / "exact", make("exact", "tagging"), 160)


@pytest.fixture(scope="session")
def ssnt_run(tmp_path_factory):
    """Soft objective and SSNT."""
    return write_run(tmp_path_factory.mktemp("runs") / "ssnt", make("soft", "ssnt"), 100)


@pytest.fixture(scope="session")
def exact_model(exact_run):
    from permalign.model import Transducer

    return Transducer.from_pretrained(exact_run)


@pytest.fixture(scope="session")
def ssnt_model(ssnt_run):
    from permalign.model import Transducer

    return Transducer.from_pretrained(ssnt_run)


@pytest.fixture
def undecided():
    """A model whose greedy, Viterbi and most probable order differ."""
    model = make("soft", "tagging").eval()
    # straight and inverted of 012, 123, 013, 023, in packed order
    scores = torch.tensor([[[1.0, 3.0], [3.0, 4.0], [2.0, 1.0], [3.0, 2.0]]]).log()

    def distribution(source, lengths):
        from permalign.structures import SeparablePermutation

        assert source.shape == (1, 3)
        return SeparablePermutation(scores, lengths)

    model.reorderer.distribution = distribution
    return model
