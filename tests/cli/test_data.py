import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.interrupts import accept_interrupts

from permalign.cli.task_options import TASK_OPTIONS
from permalign.plugins import TASKS
from permalign.tasks.registry import task_options


@pytest.fixture
def environment(tmp_path):
    """An environment without data and without a network: nobody answers at the address of the proxy."""
    nobody = "http://127.0.0.1:9"
    return {
        **{name: value for name, value in os.environ.items() if name != "PERMALIGN_DATA"},
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "https_proxy": nobody,
        "http_proxy": nobody,
        "no_proxy": "",
    }


@pytest.fixture
def permalign(environment):
    def run(*arguments, **variables):
        command = [sys.executable, "-m", "permalign", *map(str, arguments)]
        return subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            env={**environment, **variables},
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.tsv"
    rows = "".join(f"a b {i}\tx {i}\n" for i in range(30))
    path.write_text("source\ttarget\n" + rows)
    return path


def test_help_does_not_wait_for_torch(environment):
    program = (
        "import sys\n"
        "from permalign.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, "data", "show", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.startswith("Usage: permalign")
    assert done.stdout.endswith("\nFalse\n")


@pytest.mark.parametrize("verb", ["list", "show", "make", "stats", "fetch"])
def test_the_help_of_every_command_has_examples(permalign, verb):
    done = permalign("data", verb, "--help")
    assert done.returncode == 0
    assert f"Examples:\n    permalign data {verb}" in done.stdout


def test_every_option_of_every_task_is_an_option_of_the_command_line():
    assert {option for name in TASKS for option in task_options(name)} == set(TASK_OPTIONS)


def test_list_names_tasks_and_downloads(permalign):
    done = permalign("data", "list")
    assert (done.returncode, done.stderr) == (0, "")
    for name in TASKS:
        assert f"\n{name} " in done.stdout
    assert "tatoeba     missing" in done.stdout


def test_show_prints_only_examples(permalign, own):
    done = permalign("data", "show", own, "iid/dev", "-n", 2)
    assert done.returncode == 0
    assert done.stderr.startswith("note: no splits are given")
    assert done.stderr.count("\n") == 1
    assert done.stdout.count("source  a b ") == 2
    done = permalign("data", "show", "own", "iid/dev", "--path", own, "--json")
    assert [json.loads(line)["source"][:3] for line in done.stdout.splitlines()] == ["a b"] * 3


def test_notes_go_to_standard_error(permalign, tmp_path):
    (tmp_path / "a").write_text("a b\n\nc d\ne f\ng h\n")
    (tmp_path / "b").write_text("x\ny\nz\nu\nv\n")
    files = ("--source-file", tmp_path / "a", "--target-file", tmp_path / "b")
    done = permalign("data", "stats", "aligned", *files)
    same = permalign("data", "stats", tmp_path / "a", tmp_path / "b")
    assert (same.stdout, same.stderr) == (done.stdout, done.stderr)
    assert done.returncode == 0
    assert "left out 1 pairs with an empty side" in done.stderr
    assert done.stdout.splitlines()[2].split()[:2] == ["iid/train", "2"]


def test_make_does_not_overwrite_without_force(permalign, own, tmp_path):
    out = tmp_path / "out"
    done = permalign("data", "make", "own", "--path", own, "--out", out)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        str(out / "iid" / f"{part}.jsonl") for part in ("train", "dev", "test")
    ]
    again = permalign("data", "make", "own", "--path", own, "--out", out)
    assert again.returncode == 1
    assert "already exists" in again.stderr
    assert permalign("data", "make", "own", "--path", own, "--out", out, "--force").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "tatoba", "iid/train"), "did you mean 'tatoeba'?"),
        (("show", "en-ja", "iid/trian"), "did you mean 'iid/train'?"),
        (("stats", "en-ja", "--seed", "3"), "the task en-ja has no option --seed (task.seed in a config)"),
        (("stats", "own"), "the task own needs --path (task.path in a config)"),
        (("stats", "en-ja", "scan-sp"), "unknown task or file 'en-ja'"),
        (("fetch", "en-jp"), "did you mean 'en-ja'?"),
        (("show",), "missing argument"),
        (("list", "--colour"), "no such option"),
    ],
)
def test_wrong_usage_has_exit_code_two(permalign, arguments, words):
    done = permalign("data", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "own.tsv, line 1: the file is empty"),
        (b"source\ttarget\nonly one\n", "own.tsv, line 2: expected 2 tab-separated columns, found 1"),
        (b"source\ttarget\n\xff\tx\n", "own.tsv, line 2: byte 1 of the line (0xff) is not UTF-8"),
        (b"source\ttarget\n" + b"a" * 10_000_000, "own.tsv, line 2: the line is longer than"),
    ],
)
def test_malformed_files_have_exit_code_one_and_give_the_line(permalign, own, content, words):
    own.write_bytes(content)
    done = permalign("data", "stats", "own", "--path", own)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_data_says_what_to_do(permalign, tmp_path):
    done = permalign("data", "show", "en-ja", "iid/train")
    assert done.returncode == 1
    assert str(tmp_path / "cache" / "permalign" / "data" / "en-ja" / "train.en") in done.stderr
    assert "permalign data fetch en-ja" in done.stderr


def test_fetch_without_a_network_names_the_file_and_the_licence(permalign, tmp_path):
    done = permalign("data", "fetch", "geobase", "--data-dir", tmp_path / "data")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Licence of geobase: GPL-2" in done.stderr
    assert f"place it at {tmp_path / 'data' / 'geobase' / 'geobase'}" in done.stderr
    assert "Traceback" not in done.stderr


def test_fetch_prints_the_paths_of_existing_files(permalign, data_dir):
    done = permalign("data", "fetch", "scan", "geobase", PERMALIGN_DATA=str(data_dir))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == str(data_dir / "geobase" / "geobase")


def test_a_reader_may_close_the_pipe(environment, own):
    own.write_text("source\ttarget\n" + "a b c d e f g h\tx\n" * 20_000)
    command = [sys.executable, "-m", "permalign", "data", "show", "own", "iid/train", "--path", str(own)]
    process = subprocess.Popen(
        [*command, "-n", "20000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    process.stdout.readline()
    process.stdout.close()
    (note,) = process.stderr.read().splitlines()
    assert note.startswith(b"note: no splits are given, so examples were held out at random")
    process.stderr.close()
    assert process.wait(30) == 141


def test_control_c_ends_without_a_stack_trace(environment, tmp_path):
    pipe = tmp_path / "endless.tsv"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "permalign", "data", "stats", "own", "--path", str(pipe)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=accept_interrupts,
    )
    with pipe.open("wb") as writer:  # opens once the command reads
        writer.write(b"source\ttarget\n")
        writer.flush()
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == b"permalign: interrupted\n"


def test_without_typer_the_command_says_what_to_install(environment):
    program = "import sys\nsys.modules['typer'] = None\nfrom permalign.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", program, "data", "list"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == 'The command line needs typer: pip install "permalign[training]".\n'


def test_an_exported_task_can_be_read_again(permalign, data_dir, tmp_path):
    done = permalign(
        "data", "make", "geoquery", "--language", "de", "--data-dir", data_dir, "--out", tmp_path / "de"
    )
    assert done.returncode == 0
    shown = permalign(
        "data", "show", "geoquery", "temp/dev", "--language", "de", "--data-dir", data_dir, "--json"
    )
    again = permalign("data", "show", "own", "temp/dev", "--path", tmp_path / "de", "--json")
    assert shown.stdout == again.stdout != ""


def test_options_of_a_task_are_flags(permalign):
    shown = permalign(
        "data", "show", "arithmetic", "depth-8/test", "--depth", 8, "--notation", "prefix", "-n", 1
    )
    assert shown.returncode == 0
    assert "target  ( " in shown.stdout
    done = permalign("data", "show", "arithmetic", "iid/dev", "--published")
    assert done.returncode == 1
    assert "permalign data fetch arithmetic" in done.stderr
