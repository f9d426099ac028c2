import re
import subprocess
import sys

import pytest

from permalign import demo
from permalign.tasks.arithmetic import Arithmetic
from permalign.training.progress_display import Display

QUICK = ("training.max_steps=150", "training.evaluate_every=150", "training.max_dev_examples=20")


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    run = tmp_path_factory.mktemp("demo") / "run"
    return list(demo.demonstrate(run, QUICK, limit=50, display=Display()))


def test_it_learns_and_says_how_well(lines):
    (iid,) = (re.search(r"IID +([\d.]+) % of 50,", line) for line in lines if line.startswith("  IID"))
    (len_,) = (re.search(r"LEN +([\d.]+) % of 50,", line) for line in lines if line.startswith("  LEN"))
    assert float(iid[1]) > 90
    assert 0 <= float(len_[1]) <= 100


def test_it_draws_the_tree_of_an_expression(lines):
    example = demo.unseen_expression()
    assert f"  infix    {' '.join(example.source)}" in lines
    leaves = [line.rpartition("─ ")[2] for line in lines if "─ " in line and line[-1] not in "→⇄"]
    assert leaves.count("(") + leaves.count(")") == example.source.count("(") + example.source.count(")")
    assert any("I ⇄" in line for line in lines)


def test_the_expression_is_deeper_than_all_it_learned_from():
    deepest = max(example.meta["depth"] for example in Arithmetic().examples("iid/train"))
    assert demo.unseen_expression().meta["depth"] > deepest


@pytest.mark.slow
def test_the_whole_demo_runs_as_a_program():
    answer = subprocess.run(
        [sys.executable, "-X", "utf8", "-m", "permalign", "demo"], capture_output=True, encoding="utf-8"
    )
    assert answer.returncode == 0
    assert "IID  100.00 %" in answer.stdout
    assert "I ⇄" in answer.stdout
