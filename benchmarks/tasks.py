"""How long tasks take to read and generate, grammars to step, and the command line to answer."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measuring import Measurement, best_seconds
from permalign.tasks.arithmetic import Arithmetic
from permalign.tasks.geoquery import signatures
from permalign.tasks.grammar import Grammar
from permalign.tasks.translation import EnglishJapanese

PROGRAM = ["count", "state", "loc_1", "place", "higher_2", "highest", "place", "loc_2", "city"]


def reading() -> list[Measurement]:
    """Seconds to generate arithmetic, and to read en-ja where its files are (``PERMALIGN_DATA``)."""
    calls = {"arithmetic": (generate_arithmetic, 3)}
    folder = os.environ.get("PERMALIGN_DATA")
    if folder and (Path(folder) / "en-ja").is_dir():
        calls["en-ja"] = (lambda: EnglishJapanese(folder).examples("iid/train"), 3)
    seconds = best_seconds(calls)
    what = {
        "arithmetic": ("generating all splits of arithmetic", 5.0),
        "en-ja": ("reading the 50,000 pairs of en-ja", 3.0),
    }
    return [
        Measurement(name, what[name][0], measured, "s", "at most", what[name][1])
        for name, measured in seconds.items()
    ]


def generate_arithmetic() -> None:
    """Every split, at a depth the paper did not have."""
    task = Arithmetic(seed=2, depth=10)
    for split in task.splits:
        task.examples(split)


def grammar_step() -> Measurement:
    """Microseconds for one token of a GeoQuery program: what may follow, and the state after it."""
    grammar = Grammar(signatures.ANSWERS, signatures.rules(), optional=["all"])

    def walk() -> None:
        state = grammar.initial
        for token in PROGRAM:
            state.allowed_within(30)
            state = state.advance(token)

    seconds = best_seconds({"walk": (walk, 50)})["walk"] / len(PROGRAM)
    return Measurement(
        "grammar step", "one token of a constrained output", 1e6 * seconds, "µs", "at most", 50.0
    )


def command_line() -> list[Measurement]:
    """Seconds for ``permalign --help``, and to import the public names with torch."""
    programs = {
        "help": [sys.executable, "-m", "permalign.cli", "--help"],
        "import": [sys.executable, "-c", "from permalign import SeparablePermutation"],
    }
    calls = {
        name: (lambda command=command: subprocess.run(command, check=True, capture_output=True), 3)
        for name, command in programs.items()
    }
    seconds = best_seconds(calls)
    return [
        Measurement("help", "permalign --help answers", seconds["help"], "s", "at most", 1.0),
        Measurement("import", "importing the package with torch", seconds["import"], "s"),
    ]
