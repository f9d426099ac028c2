"""``make mutate``: change the code in small ways, and see whether the tests notice.

Each mutant is a copy of the package in which one comparison, operator, number or truth value is another one. It is
killed if the tests of its module fail or do not end. The mutants that survive are printed, to be looked at one by one.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = {
    "decoding/beam.py": ["tests/decoding"],
    "decoding/output_constraint.py": ["tests/decoding"],
    "structures/orders.py": ["tests/structures/test_permutations.py", "tests/structures/test_separable.py"],
    "structures/kbest.py": ["tests/structures/test_separable_contract.py"],
    "structures/monotone.py": [
        "tests/structures/test_alignments.py",
        "tests/structures/test_alignment_contract.py",
    ],
    "kernels/portable/separable.py": ["tests/structures/test_separable_contract.py", "-k", "portable"],
    "kernels/portable/labelled.py": ["tests/structures/test_labelled_contract.py", "-k", "portable"],
    "heads/tagging.py": ["tests/heads/test_tagging.py"],
    "heads/log_recurrence.py": ["tests/heads/test_log_recurrence.py"],
    "training/early_stopping.py": ["tests/training/test_runs.py"],
    "training/schedules.py": ["tests/training/test_runs.py"],
    "training/state.py": ["tests/training/test_damage.py", "tests/training/test_noise_and_leftovers.py"],
    "evaluation/metrics.py": ["tests/evaluation"],
    "evaluation/significance.py": ["tests/evaluation"],
}
"""The modules that are mutated, and the tests that should notice. The compiled kernels are left out, because they
would be compiled anew for every mutant of `permalign.kernels`."""

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """Every mutant of a module: its line, what is changed, and its source."""
    count = sum(1 for _ in ast.walk(ast.parse(source)))
    for number in range(count):
        tree = ast.parse(source)
        node = next(node for place, node in enumerate(ast.walk(tree)) if place == number)
        before = ast.unparse(node) if isinstance(node, ast.expr) else ""
        if _change(node):
            yield node.lineno, f"{before} -> {ast.unparse(node)}", ast.unparse(tree)  # type: ignore[attr-defined]


def _change(node: ast.AST) -> bool:
    """Change a node in place; returns whether there is a way to."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in OPERATORS:
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        node.value += 1
    else:
        return False
    return True


def is_annotation(source: str, line: int) -> bool:
    """Whether a line only declares types, which no test can notice."""
    return source.splitlines()[line - 1].lstrip().startswith(("def ", "@", "from ", "import "))


def survives(module: str, source: str, folder: Path, seconds: float) -> bool:
    """Whether the tests of a module pass although it has this source."""
    target = folder / "src" / "permalign" / module
    original = target.read_text()
    target.write_text(source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *TESTS[module],
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=seconds)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        target.write_text(original)


def main() -> None:
    """Try a sample of all mutants within a time limit, and print the share that was killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--sample", type=int, default=100, help="how many mutants to try at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="the time limit of the tests of one mutant"
    )
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    found = []
    for module in TESTS:
        if arguments.only in module:
            source = (ROOT / "src" / "permalign" / module).read_text()
            found += [(module, *one) for one in mutants(source) if not is_annotation(source, one[0])]
    sample = random.Random(arguments.seed).sample(found, min(arguments.sample, len(found)))
    tried, survivors = 0, []
    passing: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "copy"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", "build", "runs", "docs"))
        for module, line, change, source in sample:
            if time.monotonic() > end:
                break
            if module not in passing:
                original = (folder / "src" / "permalign" / module).read_text()
                passing[module] = survives(module, original, folder, arguments.seconds)
                if not passing[module]:
                    print(
                        f"skipped  {module}: its tests fail, or take too long, without any change", flush=True
                    )
            if not passing[module]:
                continue
            tried += 1
            alive = survives(module, source, folder, arguments.seconds)
            if alive:
                survivors.append(f"{module}, line {line}: {change}")
            print(f"{'survived' if alive else 'killed':8} {module}, line {line}: {change}", flush=True)
    print(f"{tried - len(survivors)} of {tried} mutants were killed, of {len(found)} in all.")


if __name__ == "__main__":
    main()
