"""Load a model and a run that were saved before options and parameters were renamed (see their README)."""

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tests.options.test_renames import SAVED
from tests.training.small_run import SILENT

from permalign import load_model
from permalign.options.renames import rename_parameters
from permalign.training.launch import resume
from permalign.training.state import latest_state
from permalign.training.trained_run import DecodingSettings, TrainedRun

EXPECTED = json.loads((SAVED / "expected.json").read_text())


@pytest.fixture
def run(tmp_path):
    shutil.copytree(SAVED / "run", tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    values = yaml.safe_load(config.read_text())
    values["task"]["path"] = str(SAVED / values["task"]["path"])
    config.write_text(yaml.safe_dump(values))
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["model", "run"])
def test_a_model_predicts_and_scores_as_before(name):
    model, expected = load_model(SAVED / name), EXPECTED[name]
    predictions = model.predict(expected["sentences"], beam=3, n_best=2)
    for prediction, before in zip(predictions, expected["predictions"], strict=True):
        outputs = [prediction, *prediction.alternatives]
        assert [list(output.tokens) for output in outputs] == [record["tokens"] for record in before]
        scores = [record["score"] for record in before]
        assert [output.score for output in outputs] == pytest.approx(scores, abs=1e-5)
    scores = model.score(expected["sentences"], expected["outputs"])
    assert scores == pytest.approx(expected["scores"], abs=1e-5)


def test_a_run_resumes_and_ends_as_before(run):
    resume(run, display=SILENT)
    state = latest_state(run / "state")
    weights = load_file(state / "model.safetensors")
    expected = rename_parameters(load_file(SAVED / "resumed.safetensors"))
    torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)
    progress = json.loads((state / "state.json").read_text())["progress"]
    assert (progress["step"], progress["best"]) == (8, EXPECTED["resumed"]["best"])


def test_a_run_is_evaluated(run):
    trained = TrainedRun(run)
    report = trained.evaluate("iid/dev", DecodingSettings())
    lines = (SAVED / "run" / "predictions" / "dev.jsonl").read_text().splitlines()
    expected = {line["id"]: line["output"] for line in map(json.loads, lines)}
    outputs = {prediction.example.id: list(prediction.tokens) for prediction in report.predictions}
    assert {name: outputs[name] for name in expected} == expected
