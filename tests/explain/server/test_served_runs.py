"""Finding the models of runs, and keeping some of them in memory."""

import shutil

from permalign.explain.server.served_runs import ModelCache, find_run, unique_names


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
