"""The time to generate and to read data, to advance a grammar by one token, and to start the command line."""

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


def data() -> list[Measurement]:
    """The time to generate the arithmetic task, and to read en-ja if ``PERMALIGN_DATA`` has its files."""
    calls = {"arithmetic": (generate_arithmetic, 3)}
    folder = os.environ.get("PERMALIGN_DATA")
    if folder and (Path(folder) / "en-ja").is_dir():
        calls["en-ja"] = (lambda: EnglishJapanese(folder).examples("iid/train"), 3)
    seconds = best_seconds(calls)
    rows = {
        "arithmetic": ("generating all data splits of the arithmetic task", 5.0),
        "en-ja": ("reading the 50,000 sentence pairs of en-ja", 3.0),
    }
    measurements = []
    for name, measured in seconds.items():
        what, target = rows[name]
        measurements.append(Measurement(f"{name}-data", what, measured, "s", "at most", target))
    return measurements


def generate_arithmetic() -> None:
    """Generate every split, with deeper expressions than in the paper."""
    task = Arithmetic(seed=2, depth=10)
    for split in task.splits:
        task.examples(split)


def grammar_step() -> Measurement:
    """The time for one token of a GeoQuery program: finding the tokens that may follow, and advancing by one."""
    grammar = Grammar(signatures.ANSWERS, signatures.rules(), optional=["all"])

    def walk() -> None:
        state = grammar.initial
        for token in PROGRAM:
            state.allowed_within(30)
            state = state.advance(token)

    seconds = best_seconds({"walk": (walk, 50)})["walk"] / len(PROGRAM)
    return Measurement(
        "grammar-step", "grammar constraint: time per output token", 1e6 * seconds, "µs", "at most", 50.0
    )


def command_line() -> list[Measurement]:
    """The time of ``permalign --help``, and of importing a public name that needs torch."""
    programs = {
        "help": [sys.executable, "-m", "permalign", "--help"],
        "import": [sys.executable, "-c", "from permalign import SeparablePermutation"],
    }
    calls = {
        name: (lambda command=command: subprocess.run(command, check=True, capture_output=True), 3)
        for name, command in programs.items()
    }
    seconds = best_seconds(calls)
    return [
        Measurement("help", "time of `permalign --help`", seconds["help"], "s", "at most", 1.0),
        Measurement("import", "importing permalign with torch", seconds["import"], "s"),
    ]
