"""Runs every block of the documentation, and compares what it prints with what the page shows.

The blocks of a page run in order, in a folder that is empty at the start:

- ``python`` blocks share one namespace; a ``text`` block that follows one shows what it prints;
- ``console`` blocks run each command after ``$``; the lines below a command show what it prints;
- a code block with a caption is a file, and is written under that name.

``...`` in an output matches anything. Two comments above a block change this, and give the reason:
``<!-- not run: ... -->`` and ``<!-- output differs: ... -->`` (the block is run, but its output is not compared).
"""

import inspect
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command

import permalign
from permalign.cli.app import app
from permalign.training.experiments import experiment_names

COMMANDS = get_command(app)
ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run|output differs): (?P<reason>[^>]+?) -->\n+)?"
    r"^(?P<fence>```+)(?P<language>[^\n]*)\n(?P<body>.*?)^(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
SHOWN_ONLY = {"text", "bibtex"}
DIRECTIVES = {"{math}", "{toctree}", "{automodule}", "{autoclass}", "{autofunction}", "{options-table}"}
DIRECTIVES |= {"{results-table}", "{experiments-table}", "{command-help}", "{eval-rst}"}
MOST_NOT_RUN = 9
SHORT = " --set training.max_steps=10 --set training.stages=[] --set training.max_dev_examples=20"
"""Settings that shorten the training runs of the README."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its content, and whether and how it is run."""

    language: str
    body: str
    file: str | None = None
    not_run: str | None = None
    differs: bool = False


def blocks_of(page):
    found = []
    for match in BLOCK.finditer(page.read_text("utf-8")):
        language, _, argument = match["language"].partition(" ")
        body, file = match["body"], None
        if language == "{code-block}":
            language = argument.strip()
            caption = re.match(r":caption: (\S+)\n+", body)
            file, body = caption[1], body[caption.end() :]
        not_run = match["reason"] if match["mark"] == "not run" else None
        found.append(Block(language, body, file, not_run, match["mark"] == "output differs"))
    return found


def commands_of(block):
    """Each command of a console block, with the lines that it shows."""
    for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", part)[0]
        yield command.strip(), part[len(command) :]


def name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def terminal(tmp_path):
    """Runs a command in the folder of the page, and returns what a terminal would show."""
    programs = tmp_path / ".programs"
    programs.mkdir()
    for program, module in {"permalign": "permalign", "python": None}.items():
        call = shlex.join([sys.executable, *(["-m", module] if module else [])])
        (programs / program).write_text(f'#!/bin/sh\nexec {call} "$@"\n')
        (programs / program).chmod(0o755)
    source = [str(ROOT / "src"), str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, source)),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }

    def run(command):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=300,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    return run


def check(shown, printed, what):
    def tidy(text):
        return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())

    assert OutputChecker().check_output(tidy(shown), tidy(printed), ELLIPSIS), (
        f"{what}\n--- the page shows\n{shown}\n--- but it prints\n{printed}"
    )


@pytest.mark.parametrize("page", PAGES[1:], ids=name)
def test_every_block_does_what_the_page_says(page, terminal, capsys, unchecked, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {"__name__": "__main__"}
    blocks = blocks_of(page)
    for block, following in pairwise([*blocks, None]):
        if block.file:
            Path(block.file).write_text(block.body, "utf-8")
        elif block.not_run:
            continue
        elif block.language == "python":
            exec(compile(block.body, name(page), "exec"), namespace)
            printed = capsys.readouterr().out
            if following is not None and following.language == "text" and not following.differs:
                check(following.body, printed, block.body)
        elif block.language == "console":
            for command, shown in commands_of(block):
                printed = terminal(command)
                if shown.strip() and not block.differs:
                    check(shown, printed, f"$ {command}")


def test_every_command_of_the_readme_runs(terminal):
    text = PAGES[0].read_text("utf-8")
    indented = re.findall(r"^ {4,6}(permalign .*?)(?: {2,}#.*)?$", text, flags=re.MULTILINE)
    fenced = [
        command
        for block in blocks_of(PAGES[0])
        if block.language == "console" and not block.not_run
        for command, _ in commands_of(block)
    ]
    assert fenced
    for command in [*indented, *fenced]:
        terminal(command + SHORT if re.match("permalign train [^-]", command) else command)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind_that_is_run_or_shown(page):
    known = {"python", "console"} | SHOWN_ONLY | DIRECTIVES
    unknown = [block.language for block in blocks_of(page) if not block.file and block.language not in known]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_a_python_block_prints_is_shown_right_after_it(page):
    blocks = blocks_of(page)
    for block, following in pairwise([*blocks, None]):
        if block.language == "python" and not block.file and "print(" in block.body and page != PAGES[0]:
            assert following is not None
            assert following.language == "text"


def test_few_blocks_are_not_run_and_each_says_why():
    reasons = [block.not_run for page in PAGES for block in blocks_of(page) if block.not_run]
    assert all(len(reason.split()) > 2 for reason in reasons)
    assert len(reasons) <= MOST_NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_named_in_the_text_exist(page):
    named = re.findall(r"`permalign ([a-z]+)(?: ([a-z]+/[a-z-]+))?", page.read_text("utf-8"))
    assert {verb for verb, _ in named} <= set(COMMANDS.commands)
    assert {experiment for _, experiment in named if experiment} <= set(experiment_names())


def test_the_reference_has_every_command():
    reference = (ROOT / "docs" / "reference" / "command-line.md").read_text("utf-8")
    described = {
        match.partition(" ")[0] for match in re.findall(r"^## permalign (.+)$", reference, re.MULTILINE)
    }
    assert described == set(COMMANDS.commands)


def test_every_page_is_in_a_table_of_contents():
    named = set()
    for page in PAGES[1:]:
        for block in blocks_of(page):
            if block.language == "{toctree}":
                lines = [line for line in block.body.splitlines() if line and not line.startswith(":")]
                named |= {(page.parent / f"{line}.md").resolve() for line in lines}
    assert {page.resolve() for page in PAGES[1:]} - named == {ROOT / "docs" / "index.md"}


def test_a_page_that_shows_what_is_not_printed_fails():
    with pytest.raises(AssertionError, match="the page shows"):
        check("41\n", "42\n", "print(42)")
    check("step ... done\n", "step 12 done\n", "a wildcard")


def test_the_tables_show_every_option_with_its_default(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    from extensions.tables import option_rows

    from permalign.options.run import RunOptions

    rows = {option: rest for option, *rest in option_rows(RunOptions)}
    assert rows["training.keep_checkpoints"] == [
        "integer, >= 1",
        "``1``",
        "number of best checkpoints to keep",
    ]
    assert rows["model.head.context"][0] == "``full`` or integer, >= 1"
    assert rows["model.reorderer.shared_embeddings"][1] == "``false``"
    assert rows["task"][1] == "required"
    assert rows["training.trackers"][0].startswith("list of ``tensorboard``")
    assert rows["description"][1] == '``""``'
    assert all(cell.strip() for row in rows.values() for cell in row)
    assert {"text.source.kind", "model.head.encoder.hidden_size", "training.stages.*.objective"} <= set(rows)


def test_methods_described_by_hand_have_the_arguments_that_the_page_names():
    page = (ROOT / "docs" / "reference" / "core.md").read_text("utf-8").replace("\\\n", "")
    described = re.findall(r"py:method:: permalign\.models\.base\.Model\.(\w+)\((.*?)\)\n", page)
    assert [method for method, _ in described] == ["save_pretrained", "push_to_hub"]
    for method, arguments in described:
        named = re.findall(r"(?:^|[ *])([a-z_]+)(?=[,=)]|$)", re.sub(r"\".*?\"", "", arguments))
        known = inspect.signature(getattr(permalign.Transducer, method)).parameters
        assert named
        assert [name for name in named if name not in known] == []


def test_formulas_are_drawn_by_files_of_an_installed_package(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    from extensions.formulas import FONTS, SCRIPT, mathjax

    assert (mathjax() / SCRIPT).is_file()
    assert list((mathjax() / FONTS).glob("*.woff"))


def test_numbers_of_results_are_shown_with_their_deviation_and_the_paper(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    from extensions.results import shown

    from permalign.evaluation.significance import Spread

    assert shown(Spread((51.26,)), None) == "51.3"
    assert shown(Spread((45.5, 47.0, 48.5)), 43.2) == "47.0 ± 1.5 (paper 43.2)"
    assert shown(None, 28.7) == "not run (paper 28.7)"
