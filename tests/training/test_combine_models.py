"""To which run a model belongs that is combined with others."""

from permalign.training.combine_models import _run_of
from permalign.training.run_summary import ENVIRONMENT


def test_models_and_checkpoints_belong_to_the_run_whose_folder_they_are_in(tmp_path):
    run = tmp_path / "runs" / "first"
    (run / ENVIRONMENT).parent.mkdir(parents=True)
    (run / ENVIRONMENT).write_text("{}")
    for model in (run, run / "model", run / "checkpoints" / "step-0000004"):
        assert _run_of(model) == run
    assert _run_of(run / "attempts" / "seed-1" / "model") is None
    assert _run_of(tmp_path / "runs" / "second" / "model") is None
