import os
import subprocess
import sys


def reproduce(*words, cwd):
    command = [sys.executable, "-m", "permalign", "reproduce", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=os.environ)


def test_cells_are_listed_with_the_number_of_seeds(tmp_path):
    done = reproduce("table4", "--list", "--cell", "hard", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:5] == ["hard/en-ja-iid", "0", "of", "1", "seeds"]
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_are_explained(tmp_path):
    wrong = {
        ("table1",): "unknown table 'table1'",
        ("table2", "--cell", "soft/nowhere"): "unknown cell of table2 'soft/nowhere'",
        ("table2", "--seeds", "one"): "--seeds is 'one'",
    }
    for words, message in wrong.items():
        done = reproduce(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_without_time_the_table_says_that_nothing_was_run(tmp_path):
    done = reproduce("table4", "--cell", "hard/en-ja-iid", "--budget", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 runs are unfinished" in done.stderr
    assert done.stdout.split() == ["results/table4.md", "results/runs.md"]
    assert (
        "| Hard-ReMoto | not run, *37.4* | not run, *28.7* | not run |"
        in (tmp_path / "results" / "table4.md").read_text()
    )


def test_an_unknown_option_is_an_error(tmp_path):
    done = reproduce("table4", "--cell", "hard/en-ja-iid", "--set", "training.max_stepz=1", cwd=tmp_path)
    assert done.returncode == 1
    assert "did you mean training.max_steps?" in done.stderr
