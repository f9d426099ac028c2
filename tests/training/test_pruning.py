"""Sums over orders and segmentations that are pruned in training: losses, their bounds, and what is logged."""

import json

import pytest
import torch
from tests.models.small import SOURCE, TARGET, batches, examples, make, train
from tests.training.small_run import SILENT, options, write_data

from permalign.models.build_model import build_model
from permalign.structures import PrunedLikelihood, SynchronousPermutation
from permalign.training.launch import train as train_run

KEPT = 1e-2


@pytest.fixture(scope="module")
def trained():
    """An exact model that is certain of its alignments, and a batch of its training pairs."""
    model = make("exact", "segments", history="segment", context=1)
    train(model, examples(40), steps=150)
    return model, batches(examples(40))[0]


def pruned(model, **pruning):
    """The same model with pruning."""
    other = make("exact", "segments", history="segment", context=1, **pruning)
    other.load_state_dict(model.state_dict())
    return other


def test_the_loss_is_at_most_the_bound_above_that_of_exact_sums(trained):
    model, batch = trained
    exact = model.train().loss(batch)
    assert exact.pruning_bound.item() == 0.0
    loss = pruned(model, pruning_threshold=KEPT).train().loss(batch)
    above = loss.total.item() - exact.total.item()
    assert 0 < above <= loss.pruning_bound.item() < 1


def test_within_the_tolerance_or_exact(trained):
    model, batch = trained
    exact = model.train().loss(batch).total.item()
    within = pruned(model, pruning_threshold=KEPT, pruning_tolerance=1e-3).train().loss(batch)
    assert within.pruning_bound.item() <= 1e-3
    assert within.total.item() == pytest.approx(exact, abs=1e-3)
    none = pruned(model, pruning_threshold=KEPT, pruning_tolerance=0.0).train().loss(batch)
    assert none.total.item() == pytest.approx(exact, rel=1e-5)


def test_only_training_is_pruned(trained):
    model, batch = trained
    other = pruned(model, pruning_threshold=KEPT).eval()
    with torch.no_grad():
        assert torch.equal(other.log_likelihood(batch), model.eval().log_likelihood(batch))


@pytest.fixture
def quarter(monkeypatch):
    """Every sum that may be pruned is exact, but says that it may have lost a quarter of a nat."""

    def pruned_log_likelihood(distribution, threshold, tolerance):
        assert (threshold, tolerance) == (KEPT, 2.0)
        exact = distribution.log_likelihood()
        return PrunedLikelihood(exact, torch.full_like(exact, 0.25))

    monkeypatch.setattr(SynchronousPermutation, "pruned_log_likelihood", pruned_log_likelihood)
    return {"pruning_threshold": KEPT, "pruning_tolerance": 2.0}


def test_bounds_of_inverse_models_and_ensembles_are_summed(quarter):
    sizes = {"embedding_dim": 8, "encoder": {"hidden_size": 8}}
    side = {
        "reorderer": {"kind": "separable", "objective": "exact", "scorer_hidden_size": 8, **sizes},
        "head": {"kind": "segments", "hidden_size": 8, **sizes, **quarter},
    }
    model = build_model({**side, "inverse": side, "ensemble_size": 3}, SOURCE, TARGET).train()
    assert model.loss(batches(examples(8))[0]).pruning_bound.item() == pytest.approx(3 * 2 * 0.25)


@pytest.mark.parametrize("prunes", [False, True])
def test_the_bound_is_logged_if_the_model_is_pruned(tmp_path, quarter, prunes):
    values = options(write_data(tmp_path), max_steps=3, log_every=2, stages=[])
    values["model"]["reorderer"]["objective"] = "exact"
    values["model"]["head"] |= {"kind": "segments", **(quarter if prunes else {})}
    train_run(values, tmp_path / "run", display=SILENT)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    bounds = [one.get("pruning_bound") for one in map(json.loads, lines) if one["kind"] == "train"]
    assert bounds == ([pytest.approx(0.25)] * 2 if prunes else [None] * 2)
