"""The entry point: Ctrl-C before a command begins, and options spelled as in a config."""

import signal
import subprocess
import sys
from errno import EACCES, EROFS
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from permalign import cli
from permalign.cli.app import app
from permalign.cli.error_messages import report_errors


def test_an_interruption_while_modules_are_imported_is_one_line(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "use_passive_threads", interrupt)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "permalign: interrupted\n"


def test_an_interruption_that_an_import_turns_into_another_error_is_one_line(monkeypatch, capsys):
    def fail():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RecursionError("maximum recursion depth exceeded") from None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(cli, "use_passive_threads", fail)
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "permalign: interrupted\n"


def test_another_error_before_a_command_begins_is_not_an_interruption(monkeypatch):
    def fail():
        raise RecursionError

    monkeypatch.setattr(cli, "use_passive_threads", fail)
    with pytest.raises(RecursionError):
        cli.main()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"], ["models"]])
def test_output_that_cannot_be_written_is_one_line(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "permalign", *arguments]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "permalign: standard output: No space left on device\n")


def test_options_may_be_spelled_with_underscores_as_in_a_config(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,c\nx,y,z\n", encoding="utf-8")
    shown = CliRunner().invoke(
        app, ["data", "show", str(path), "iid/train", "--source_column", "b", "--target_column", "c"]
    )
    assert shown.exit_code == 0, shown.output
    assert "source  y" in shown.output


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'accelerate.utils'", name="accelerate.utils"),
            'permalign: this command needs accelerate: pip install "permalign[training]".',
        ),
        (
            OSError(EROFS, "Read-only file system", "runs/a"),
            "permalign: runs/a: Read-only file system. Choose a folder that can be written to, with --run, --out or "
            "--output.",
        ),
        (
            OSError(EACCES, "Permission denied", "runs"),
            "permalign: runs: Permission denied. Choose a folder that can be written to, with --run, --out or "
            "--output.",
        ),
        (OSError(EACCES, "Permission denied", __file__), f"permalign: {__file__}: Permission denied"),
    ],
)
def test_missing_libraries_and_read_only_folders_are_one_line(error, message, monkeypatch, capsys):
    monkeypatch.setattr("permalign.cli.error_messages._discard_pending_output", lambda: None)
    with pytest.raises(typer.Exit) as ended, report_errors():
        raise error
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == f"{message}\n"


def test_an_experiment_followed_by_data_says_how_to_combine_them(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["train", "geoquery/soft", str(path)])
    assert done.exit_code == 2
    assert "write --data" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("trian", "no such command 'trian'. Did you mean 'train'? See permalign --help."),
        ("data sho", "no such command 'sho'. Did you mean 'show'? See permalign data --help."),
        ("--colour", "no such option: --colour. See permalign --help."),
        (
            "train --recip exact",
            "no such option: --recip; did you mean --recipe? See permalign train --help.",
        ),
        ("compare a", "missing argument 'SYSTEM_B'. See permalign compare --help."),
        (
            "train a.csv --recipe best",
            "invalid value for '--recipe': 'best' is not one of 'auto', 'ssnt', 'exact', 'labelled', 'hard', "
            "'seq2seq', 'tagging'. See permalign train --help.",
        ),
        ("train --seed x", "invalid value for '--seed': "),
        ("train --set", "option '--set' requires an argument."),
        ("schema extra", "got unexpected extra argument"),
        (
            "train",
            "your data, the name of an experiment (see permalign train --list) or a YAML file is missing.",
        ),
        ("data show nothing", "unknown task or file 'nothing'. Choose from: "),
        (
            "evaluate dates --file a.tsv --split iid/dev",
            "use either --file with its columns, or --split and --set.",
        ),
    ],
)
def test_wrong_usage_is_one_line(arguments, message):
    done = CliRunner().invoke(app, arguments.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"permalign: {message}")
    assert done.stderr.count("\n") == 1
    if message.endswith("."):
        assert done.stderr == f"permalign: {message}\n"


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_a_group_without_a_command_prints_its_help(arguments):
    done = CliRunner().invoke(app, arguments)
    assert done.output.startswith(f"Usage: {' '.join(['permalign', *arguments])} [OPTIONS] COMMAND")


@pytest.mark.parametrize(
    "command", ["predict RUN", "explain RUN a", "evaluate RUN", "train --resume RUN", "train PAIRS"]
)
def test_a_misspelt_run_or_file_is_answered_by_the_most_similar_one(tmp_path, command):
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "pairs.tsv").touch()
    run, pairs = tmp_path / "runs" / "frist", tmp_path / "pars.tsv"
    words = [{"RUN": str(run), "PAIRS": str(pairs)}.get(word, word) for word in command.split()]
    done = CliRunner().invoke(app, words)
    meant = tmp_path / "pairs.tsv" if "PAIRS" in command else tmp_path / "runs" / "first"
    assert done.exit_code == 1
    assert f"Did you mean {meant}?" in done.stderr
    assert done.stderr.count("\n") == 1
