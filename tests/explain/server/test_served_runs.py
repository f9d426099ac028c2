"""Finding the models of runs, and keeping some of them in memory."""

import json
import shutil
from itertools import permutations

import pytest

from permalign.explain.server.answers import answer_job
from permalign.explain.server.limits import Limits
from permalign.explain.server.served_runs import ModelCache, Search, find_run, unique_names
from permalign.explain.server.worker_messages import Job


def test_few_models_are_kept_in_memory(exact_run):
    models = ModelCache({"exact": find_run(exact_run, "exact")}, max_models=2)
    first = models.get("exact")
    assert models.get("exact") is first
    models.get("exact", "step-0000000")
    models.get("exact", "step-0000080")
    assert len(models._models) == 2
    assert models.get("exact") is not first


def test_a_checkpoint_that_is_the_best_is_not_shown_twice(exact_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(exact_run, run)
    shutil.copytree(run / "model", run / "checkpoints" / "step-0000160")
    assert list(find_run(run, "run").models) == ["best", "step-0000000", "step-0000080"]


def test_a_run_twice_has_two_names(exact_run):
    assert unique_names([exact_run, exact_run]) == ["exact", "exact (2)"]


@pytest.mark.parametrize(("beam", "length_penalty"), [(1, 0.0), (4, 0.0), (4, 1.0)])
def test_outputs_are_searched_as_the_run_is_evaluated(ssnt_run, tmp_path, beam, length_penalty):
    run = tmp_path / "run"
    shutil.copytree(ssnt_run / "checkpoints" / "step-0000000", run / "model")
    training = {"beam": beam, "length_penalty": length_penalty}
    options = {"task": {"name": "own", "path": "pairs.tsv"}, "training": training}
    (run / "config.yaml").write_text(json.dumps(options))
    models = ModelCache({"run": find_run(run, "run")})
    sentences = [" ".join(words) for size in (2, 3) for words in permutations("abcd", size)]

    def answers(operation, **request):
        answer = answer_job(Job(operation, {"run": "run", **request}), models, Limits())
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    expected = [
        prediction.text
        for prediction in models.get("run").predict(sentences, beam=beam, length_penalty=length_penalty)
    ]
    assert [answer["output"] for answer in answers("predict", sentences=sentences)] == expected
    explained = [answers("explain", sentence=sentence)["trace"]["target"] for sentence in sentences]
    assert [" ".join(target) for target in explained] == expected
    default = [prediction.text for prediction in models.get("run").predict(sentences, beam=5)]
    assert default != expected, "the default search finds the same, so this test could not fail"


def test_a_model_that_is_no_run_is_searched_by_a_beam_of_five(exact_run):
    assert find_run(exact_run, "exact").search == Search(beam=5, length_penalty=0.0)
