"""What the README says is run, and its numbers are those that were measured."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import torch
from benchmarks import table

import permalign
from permalign.kernels.layout import split_count, split_index
from permalign.structures import SeparablePermutation
from permalign.structures.derivations import RULES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
WORDS = ("the", "girl", "saw", "the", "hedgehog")

# What goes together in the drawn tree, and how: the part i..j-1, the part j..k-1, the rule, the score; others are 0.
HABITS = (
    (0, 1, 2, "S", 4.0),
    (3, 4, 5, "S", 4.0),
    (2, 3, 5, "I", 4.0),
    (2, 3, 5, "S", 2.5),
    (0, 2, 5, "S", 3.0),
    (0, 2, 5, "I", 0.5),
)
RESULTS = json.loads(table.RESULTS.read_text("utf-8"))


def test_there_is_an_example_of_ten_lines():
    assert any(sum(bool(line) for line in block.splitlines()) == 10 for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_works_when_pasted(block, capsys, unchecked, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_the_example_learns_what_it_says(capsys):
    exec(BLOCKS[0], {})
    assert capsys.readouterr().out.startswith("['she', 'it', 'read']")


def test_the_model_answers_what_is_shown(capsys, unchecked, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(BLOCKS[1], {})
    shown = "".join(f"    {line}\n" for line in capsys.readouterr().out.splitlines())
    assert shown in README


@pytest.mark.parametrize("seed", range(3))
def test_the_model_aligns_every_word_with_its_own(seed, capsys, unchecked, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(BLOCKS[1].replace("manual_seed(0)", f"manual_seed({seed})"), namespace)
    prediction = namespace["prediction"]
    explanation = prediction.explanation
    assert prediction.text == "READ IT THEY"
    aligned = [(explanation.source[word].upper(),) for (word,) in explanation.alignment]
    assert aligned == [(token,) for token in prediction.tokens]


def test_the_table_is_the_one_that_was_measured():
    assert table.with_table(README, RESULTS) == README


def test_what_was_measured_names_its_machine():
    assert {"date", "commit", "cpu", "cores", "python", "torch", "numba"} <= set(RESULTS["machine"])


def test_the_drawn_tree_is_the_best_one():
    scores = torch.zeros(1, split_count(len(WORDS)), 2)
    for start, middle, end, rule, score in HABITS:
        split = int(split_index(len(WORDS), *torch.tensor([start, middle, end])))
        scores[0, split, RULES.index(rule)] = score
    tree = SeparablePermutation(scores).best_derivation()[0].draw(WORDS)
    drawn = [line[4:].split("   before")[0].split("   after")[0].rstrip() for line in README.splitlines()]
    lines = tree.splitlines()
    assert any(drawn[start : start + len(lines)] == lines for start in range(len(drawn)))


def test_every_command_of_make_exists():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", README, flags=re.MULTILINE)) <= set(targets)


def test_make_says_what_it_downloads_and_takes_torch_from_the_index_that_is_set(tmp_path):
    command = ["make", "--dry-run", "demo", f"VENV={tmp_path / 'new'}", "TORCH_INDEX=https://index.example"]
    steps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    places = [
        steps.index(words) for words in ("gigabytes", "torch --index-url https://index.example\n", ".[dev]")
    ]
    assert places == sorted(places)
    assert re.search(r"make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu\b", README)


def test_every_extra_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        name for names in re.findall(r'"(?:permalign|\.)\[(.*?)\]"', README) for name in names.split(",")
    }
    assert named
    assert named <= set(extras)


def test_every_link_to_a_file_leads_somewhere():
    links = re.findall(r"\]\((?!http)(.*?)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_citation_is_of_this_version():
    assert f"version: {permalign.__version__}\n" in (ROOT / "CITATION.cff").read_text()
