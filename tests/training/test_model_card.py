"""The card of a model is filled from its run."""

from tests.training.small_run import SILENT, options, write_data

from permalign.files import CHECKSUMS, require_unchanged
from permalign.models.saving import FILES
from permalign.options.run import RunOptions
from permalign.training import resume, train
from permalign.training.model_card import model_card


def test_a_run_writes_the_card_of_its_model(tmp_path):
    data = write_data(tmp_path / "data")
    train(options(data, max_steps=8), tmp_path / "run", display=SILENT)
    card = (tmp_path / "run" / "model" / "README.md").read_text("utf-8")
    assert "| iid/dev | exact match |" in card
    assert "reorderer separable (hard), head ssnt with encoder bilstm" in card
    assert "that of your files" in card
    assert "max_steps: 8" in card
    (tmp_path / "run" / "model" / "README.md").write_text("changed by hand")
    resume(tmp_path / "run", display=SILENT)
    assert (tmp_path / "run" / "model" / CHECKSUMS).is_file()
    require_unchanged(tmp_path / "run" / "model", FILES)


def test_the_command_is_that_of_the_user_without_folders():
    parsed = RunOptions.parse({"task": {"name": "dates"}, "training": {"max_steps": 3}})
    environment = {"command": ["/somewhere/bin/permalign", "train", "a file.yaml"], "permalign": "0.1.0"}
    card = model_card(parsed, environment, {"iid/dev": {"exact_match": 12.345}})
    assert "`permalign train 'a file.yaml'`" in card
    assert "/somewhere" not in card
    assert "| iid/dev | exact match | 12.3 |" in card
    assert "`permalign train config.yaml`" in model_card(parsed, {"command": ["script.py"]}, {})
