"""Folders that are removed, replaced or locked while a run is trained: one line says what to do, or they are remade."""

import errno
import os
import shutil
import threading

import pytest
import yaml
from tests.training.small_run import SILENT, options, remains, write_data
from typer.testing import CliRunner

from permalign.cli.app import app
from permalign.errors import DataError
from permalign.training.launch import resume, train
from permalign.training.progress_display import Display
from permalign.training.run_directory import RunDirectory
from permalign.training.write_errors import explain_lost_folder, require_same_file


class AfterStep(Display):
    """Does something after a step of training, once."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def advance(self, step, loss):
        if step == self.step:
            self.action()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data):
    train(options(data), data.parent / "run", display=SILENT)
    return data.parent / "run"


@pytest.mark.parametrize("step", [2, 7])
def test_a_run_whose_folder_is_removed_ends_in_one_line_and_leaves_nothing(data, tmp_path, capfd, step):
    run = tmp_path / "run"
    with pytest.raises(DataError) as caught:
        train(options(data), run, display=AfterStep(step, lambda: shutil.rmtree(run)))
    assert str(caught.value) == (
        f"{run}: was removed while the run was being trained. Restore it and resume the run with `permalign train "
        f"--resume {run}`, or start the run again."
    )
    assert "Traceback" not in capfd.readouterr().err
    assert not run.exists()
    assert [thread.name for thread in threading.enumerate() if "tensorboard" in type(thread).__module__] == []


@pytest.mark.parametrize("part", ["events", "model", "predictions"])
def test_a_part_of_a_run_that_is_removed_is_made_again_or_resumed(whole, data, tmp_path, capfd, part):
    run = tmp_path / "run"
    display = AfterStep(10, lambda: shutil.rmtree(run / part))  # after the first checkpoint, of step 8
    if part == "events":  # to which TensorBoard can add no more
        with pytest.raises(DataError, match=r"run/events: was removed or replaced .* --resume \S+/run`\.$"):
            train(options(data), run, display=display)
        resume(run, display=SILENT)
    else:
        train(options(data), run, display=display)
    assert "Traceback" not in capfd.readouterr().err
    assert remains(run) == remains(whole)


def test_the_command_line_says_it_in_one_line(data, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(options(data)))
    removing = AfterStep(7, lambda: shutil.rmtree(tmp_path / "run"))
    monkeypatch.setattr("permalign.training.launch.default_display", lambda: removing)
    answer = CliRunner().invoke(app, ["train", "mine.yaml", "--run", "run"])
    assert answer.exit_code == 1
    (line,) = answer.stderr.splitlines()
    assert line.startswith("permalign: run: was removed while the run was being trained. Restore it")
    assert capfd.readouterr().err == ""


def test_a_run_that_takes_the_place_of_another_one_is_not_written_to(whole, data, tmp_path):
    run = tmp_path / "run"

    def replace():
        shutil.rmtree(run)
        shutil.copytree(whole, run)

    with pytest.raises(DataError, match=r"metrics\.jsonl: was removed or replaced"):
        train(options(data, trackers=[]), run, display=AfterStep(2, replace))
    assert remains(run) == remains(whole)


@pytest.mark.parametrize(
    ("number", "name", "advice"),
    [
        (errno.EROFS, "run/state", r"run/state: cannot be written \(Read-only .*\)\. Make it writable again"),
        (
            errno.EIO,
            None,
            r"run: cannot be written \(Input/output error\)\. Make it writable again, and resume",
        ),
        (errno.ENOENT, "run/model/config.json", r"run/model: was removed or replaced"),
    ],
)
def test_other_errors_of_the_files_of_a_run_are_explained(tmp_path, number, name, advice):
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.config.write_text("seed: 1")
    with pytest.raises(DataError, match=advice), explain_lost_folder(run):
        raise OSError(number, os.strerror(number), *([] if name is None else [str(tmp_path / name)]))


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file", "elsewhere/data.tsv"),
        ConnectionError(errno.ECONNRESET, "Connection reset by peer"),
        DataError("is not a record of a step.", "run/metrics.jsonl"),
    ],
)
def test_errors_that_have_nothing_to_do_with_writing_stay_as_they_are(tmp_path, error):
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.config.write_text("seed: 1")
    with pytest.raises(type(error)) as caught, explain_lost_folder(run):
        raise error
    assert caught.value is error


def test_a_file_is_the_same_until_it_is_replaced(tmp_path):
    path = tmp_path / "log"
    with path.open("w") as file:
        require_same_file(file.fileno(), path)
        (tmp_path / "other").touch()
        os.replace(tmp_path / "other", path)
        with pytest.raises(FileNotFoundError, match="log"):
            require_same_file(file.fileno(), path)
